"""A run from its configuration to its result: resume or start, train, write down, finish."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedopt.algorithms import Vector
from fedopt.data import Federation
from fedopt.engine.client_state import ClientMemory, MemoryTable
from fedopt.engine.evaluate import fixed_sample, is_evaluated, means, measure_clients, sample_size
from fedopt.engine.executors.base import Executor
from fedopt.engine.loop import Position, Step, start, train
from fedopt.engine.problem import Problem
from fedopt.engine.round import Setting
from fedopt.engine.sampling import SAMPLERS
from fedopt.engine.worker import initial_vector, single_thread
from fedopt.errors import Diverged, FedoptError, UserError
from fedopt.models.flat import Flat
from fedopt.runs import tensorboard as event_files
from fedopt.runs.build_problem import plan_of
from fedopt.runs.config import Config
from fedopt.runs.directory import RunDirectory
from fedopt.runs.metrics_log import Journal, finite, lines_of
from fedopt.runs.records import mean_over_last_rounds
from fedopt.runs.shared_data import Opened as Opened
from fedopt.runs.shared_data import open_data as open_data
from fedopt.version import __version__

OnStep = Callable[[Step], None]
Say = Callable[[str], None]


class Stop(Exception):
    """Raised by `on_step` to end a run early, as a search does with a trial; running it again continues it.

    It is no error: `execute` keeps a checkpoint, writes the status "pruned" with this text, and raises it on.
    """


@dataclass(frozen=True)
class RunResult:
    """What a run came to. `train` and `test` are the lines of metrics.jsonl."""

    task: str
    algorithm: str
    rounds: int
    seed: int
    train_loss: float | None  # mean over the last 100 rounds
    metric: str
    value: float | None  # mean over the evaluations of the last 100 rounds
    params: int
    x_sha256: str  # of the final vector's little-endian float32 bytes
    seconds: float
    x: Vector = field(repr=False)
    train: list[dict[str, Any]] = field(repr=False)
    test: list[dict[str, Any]] = field(repr=False)
    full_test: dict[str, float | None] | None  # after the last round, where eval.final is "full"
    data: str  # "synthetic", or where the data came from
    path: Path | None
    problem: Problem = field(repr=False)

    @property
    def model(self) -> nn.Module:
        """The trained module, in evaluation mode."""
        module = self.problem.model()
        Flat(module, self.problem.buffers).bind(self.x.clone())
        return module.eval()

    def summary(self) -> dict[str, Any]:
        """The JSON object of `--json`."""
        names = "task algorithm rounds seed train_loss metric value params x_sha256 seconds data".split()
        optional = {"full_test": self.full_test, "run": None if self.path is None else str(self.path)}
        return {name: getattr(self, name) for name in names} | {k: v for k, v in optional.items() if v}


def execute(
    config: Config,
    problem: Problem,
    executor: Executor,
    *,
    out: Path | None = None,
    command: str = "",
    better: str = "higher",
    initial: Vector | None = None,
    on_step: OnStep | None = None,
    say: Say = lambda text: None,
    tensorboard: bool = False,
    opened: Opened | None = None,
    until: int | None = None,
) -> RunResult:
    """Run `config` on `executor`. With `out`, write a run directory, or resume the run in it.

    With `until`, stop after that round with a checkpoint and the status "pruned"; a later call resumes the
    run. Evaluations and results are those of a run of `config.rounds` rounds. `opened` holds data that an
    earlier run in this process has opened with `open_data`.
    """
    if tensorboard:
        _check_event_files(out)
    federation = opened.federation if opened else problem.federation()
    _check_cohort(config, federation)
    info = {
        "fedopt": __version__,
        "task": config.task,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "rounds": config.rounds,
        "status": "running",
        "command": command,
        "data": federation.source,
        "metric": next(iter(problem.metrics)),
        "better": better,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    directory = RunDirectory(out, config, info) if out else None
    run = _Run(config, problem, executor, federation, directory, say)
    try:
        return run.complete(initial, on_step, command, tensorboard, opened, until)
    except Stop as stop:
        run.checkpoint()
        run.ended("pruned", str(stop))
        raise
    except Diverged as error:
        run.ended("diverged", str(error))
        raise
    except FedoptError as error:
        if directory and not directory.done:  # of a finished run the result stays
            directory.update(status="failed", message=str(error))
        raise
    finally:
        run.close()


class _Run:
    """One execution: where it stands, and what it has written."""

    journal: Journal
    position: Position
    seconds: float

    def __init__(
        self,
        config: Config,
        problem: Problem,
        executor: Executor,
        federation: Federation,
        directory: RunDirectory | None,
        say: Say,
    ) -> None:
        self.config = config
        self.problem = problem
        self.executor = executor
        self.federation = federation
        self.directory = directory
        self.say = say
        self._saved = 0  # the round of the newest checkpoint

    def complete(
        self,
        initial: Vector | None,
        on_step: OnStep | None,
        command: str,
        event_file: bool,
        opened: Opened | None,
        until: int | None,
    ) -> RunResult:
        """Go on from what is there to the last round."""
        config, directory, test = self.config, self.directory, self.federation.test
        algorithm = self.problem.algorithm()
        x = initial_vector(self.problem) if initial is None else initial
        examples = sample_size(test, config.eval.sample)
        plan = plan_of(config, examples)
        state = algorithm.init(x)
        self.position, self.seconds = start(state, plan), 0.0
        table = self._restore(state, algorithm.keeps) if directory else MemoryTable()
        self.journal = Journal(directory, event_file)
        if directory and directory.done and self.position.round >= config.rounds:
            self.say(f"{directory.path} is finished: {self.position.round} rounds")
            return self._result(directory.info.get("full_test"))
        if directory:
            directory.restart(rounds=config.rounds, command=command)
        last = config.rounds if until is None else min(until, config.rounds)
        if last < config.rounds and self.position.round >= last:
            return self._pruned()
        if self.position.round:
            self.say(f"continuing after round {self.position.round}")

        sample = opened.sample if opened else fixed_sample(test, examples)
        self.executor.load(self.problem, self.federation, sample)
        setting = Setting(
            algorithm,
            self.executor,
            self.federation.train,
            SAMPLERS[config.sampling],
            config.clients_per_round,
            config.seed,
            table,
        )
        began = time.monotonic() - self.seconds
        with closing(train(setting, plan, self.position)) as steps:
            for step in steps:
                self.position, self.seconds = step.position, time.monotonic() - began
                for line in lines_of(step, self.seconds):
                    self.journal.add(line)
                if step.position.round % config.checkpoint.every == 0 or step.position.round == config.rounds:
                    self.checkpoint()
                if on_step:
                    on_step(step)
                if step.position.round == last < config.rounds and not self._stalled:
                    self.checkpoint()
                    return self._pruned()
        if self.executor.fallback_reason:
            self.say(f"clients were trained one after the other: {self.executor.fallback_reason}")
        full_test = self._full_test() if config.eval.final == "full" else None
        self.seconds = time.monotonic() - began
        result = self._result(full_test)
        if directory:
            summary = result.summary()
            directory.update(status="done", **{key: summary[key] for key in summary if key != "run"})
        return result

    def checkpoint(self) -> None:
        """Keep the position, unless there is nothing new, or nothing to go on from."""
        at = self.position
        if self.directory and at.round > self._saved and not self._stalled:
            self.directory.commit(at, self.seconds)
            self._saved = at.round

    @property
    def _stalled(self) -> bool:
        """Whether the run is about to be given up, because its updates are not finite."""
        return self.position.stalled >= self.config.patience

    def _pruned(self) -> RunResult:
        """Record that the run was stopped before its last round, and return its result so far."""
        self.ended("pruned", f"stopped after round {self.position.round}")
        return self._result(None)

    def ended(self, status: str, why: str) -> None:
        """Write down how an unfinished run ended, with its numbers so far."""
        if self.directory:
            so_far = self._result(None)
            self.directory.update(
                status=status,
                message=why,
                rounds_done=so_far.rounds,
                train_loss=so_far.train_loss,
                value=so_far.value,
                seconds=so_far.seconds,
            )

    def close(self) -> None:
        try:
            if hasattr(self, "journal"):
                self.journal.close()
        finally:
            if self.directory:
                self.directory.close()

    def _restore(self, state: Any, keeps: tuple[str, ...]) -> ClientMemory:
        """Take up the newest checkpoint, and what clients kept up to it."""
        assert self.directory is not None
        found, notes = self.directory.restore(state)
        for note in notes:
            self.say(note)
        if found:
            self.position, self.seconds = found.position, found.seconds
            self._saved = found.position.round
        population = len(self.federation.train.ids)
        return self.directory.client_table(keeps, len(state.x), population, self.position.round)

    def _full_test(self) -> dict[str, float | None]:
        clients = len(self.federation.test.ids)
        self.say(f"measuring the full test set of {clients:,} clients")
        with single_thread():
            parts = measure_clients(self.executor, self.position.state.x, "test", clients)
        return {name: finite(value) for name, value in means(parts).items()}

    def _result(self, full_test: dict[str, float | None] | None) -> RunResult:
        config, x, rounds = self.config, self.position.state.x.clone(), self.position.round
        metric = next(iter(self.problem.metrics))
        train_lines, test_lines = self.journal.splits()
        planned = [  # a run that was extended has evaluations that one of this length has not
            line
            for line in test_lines
            if is_evaluated(line["round"], rounds, config.eval.every, config.eval.last_every)
        ]
        return RunResult(
            task=config.task,
            algorithm=config.algorithm,
            rounds=rounds,
            seed=config.seed,
            train_loss=mean_over_last_rounds(train_lines, "loss", rounds),
            metric=metric,
            value=mean_over_last_rounds(planned, metric, rounds),
            params=len(x),
            x_sha256=sha256_of(x),
            seconds=round(self.seconds, 3),
            x=x,
            train=train_lines,
            test=test_lines,
            full_test=full_test,
            data=self.federation.source,
            path=self.directory.path if self.directory else None,
            problem=self.problem,
        )


def sha256_of(x: Vector) -> str:
    return hashlib.sha256(x.detach().to(torch.float32).numpy().astype("<f4").tobytes()).hexdigest()


def _check_event_files(out: Path | None) -> None:
    if out is None:
        raise UserError("tensorboard writes into the run directory; name one with out")
    event_files.require()


def _check_cohort(config: Config, federation: Federation) -> None:
    population = len(federation.train.ids)
    if config.clients_per_round > population:
        raise UserError(
            f"clients_per_round is {config.clients_per_round} and the federation has {population} clients; "
            f"allowed: 1 to {population}"
        )
