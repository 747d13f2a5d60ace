"""A run from its configuration to its result: resume or start, train, write down, finish."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedopt.algorithms import Vector
from fedopt.data import Federation
from fedopt.engine.evaluate import fixed_sample, is_evaluated, means, measure_clients, sample_size
from fedopt.engine.executors import Executor
from fedopt.engine.loop import Plan, Position, Step, start, train
from fedopt.engine.memory import ClientMemory, MemoryTable
from fedopt.engine.problem import Problem
from fedopt.engine.round import Setting
from fedopt.engine.runner import initial_vector, single_thread
from fedopt.engine.sampling import SAMPLERS
from fedopt.errors import FedoptError, UserError
from fedopt.experiments.config import Config
from fedopt.experiments.problems import plan_of
from fedopt.experiments.records import LAST_ROUNDS
from fedopt.experiments.rundir import RunDirectory
from fedopt.models.flat import Flat
from fedopt.version import __version__

OnStep = Callable[[Step], None]


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


class _Journal:
    """Lines of metrics as they come: in the run directory, or in memory where there is none."""

    def __init__(self, directory: RunDirectory | None) -> None:
        self._directory = directory
        self._lines: list[dict[str, Any]] = []

    def add(self, line: dict[str, Any]) -> None:
        if self._directory:
            self._directory.log(line)
        else:
            self._lines.append(line)

    def splits(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All train lines and all test lines."""
        lines = self._directory.lines() if self._directory else self._lines
        train, test = ([line for line in lines if line["split"] == name] for name in ("train", "test"))
        return train, test


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
    say: Callable[[str], None] = lambda text: None,
) -> RunResult:
    """Run `config` on `executor`, in `out` if given; continues what is there."""
    federation = problem.federation()
    _check_cohort(config, federation)
    metric = next(iter(problem.metrics))
    info = {
        "fedopt": __version__,
        "task": config.task,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "rounds": config.rounds,
        "status": "running",
        "command": command,
        "data": federation.source,
        "metric": metric,
        "better": better,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    directory = RunDirectory(out, config, info) if out else None
    try:
        return _execute(config, problem, executor, federation, directory, initial, on_step, say, command)
    except FedoptError as error:
        if directory:
            directory.update(status="failed", message=str(error))
        raise
    finally:
        if directory:
            directory.close()


def _execute(
    config: Config,
    problem: Problem,
    executor: Executor,
    federation: Federation,
    directory: RunDirectory | None,
    initial: Vector | None,
    on_step: OnStep | None,
    say: Callable[[str], None],
    command: str,
) -> RunResult:
    algorithm = problem.algorithm()
    x = initial_vector(problem) if initial is None else initial
    population = len(federation.train.ids)
    examples = sample_size(federation.test, config.eval.sample)
    plan = plan_of(config, examples)
    position, seconds, journal, table = _begin(
        directory, algorithm.init(x), algorithm.keeps, plan, population, say
    )
    if directory and directory.done and position.round >= config.rounds:
        say(f"{directory.path} is finished: {position.round} rounds")
        return _result(
            config,
            problem,
            position,
            journal,
            seconds,
            directory,
            federation.source,
            directory.info.get("full_test"),
        )
    if position.round:
        say(f"continuing after round {position.round}")
    if directory:
        directory.update(status="running", rounds=config.rounds, message=None, command=command)

    executor.load(problem, fixed_sample(federation.test, examples))
    setting = Setting(
        algorithm,
        executor,
        federation.train,
        SAMPLERS[config.sampling],
        config.clients_per_round,
        config.seed,
        table,
    )
    began = time.monotonic() - seconds
    for step in train(setting, plan, position):
        position, seconds = step.position, time.monotonic() - began
        for line in _lines(step, seconds):
            journal.add(line)
        due = position.round % config.checkpoint.every == 0 or position.round == config.rounds
        if directory and due and position.round and position.stalled < config.patience:
            directory.commit(position, seconds)
        if on_step:
            on_step(step)
    full_test = None
    if config.eval.final == "full":
        say(f"measuring the full test set of {len(federation.test.ids):,} clients")
        with single_thread():
            parts = measure_clients(executor, position.state.x, "test", len(federation.test.ids))
        full_test = {name: finite(value) for name, value in means(parts).items()}
    seconds, source = time.monotonic() - began, federation.source
    result = _result(config, problem, position, journal, seconds, directory, source, full_test)
    if directory:
        summary = result.summary()
        directory.update(status="done", **{key: summary[key] for key in summary if key != "run"})
    return result


def _begin(
    directory: RunDirectory | None,
    state: Any,
    keeps: tuple[str, ...],
    plan: Plan,
    population: int,
    say: Callable[[str], None],
) -> tuple[Position, float, _Journal, ClientMemory]:
    """The position to go on from, the seconds spent so far, the journal, and the clients' table."""
    position, seconds = start(state, plan), 0.0
    if directory is None:
        return position, seconds, _Journal(None), MemoryTable()
    found, notes = directory.restore(state)
    for note in notes:
        say(note)
    if found:
        position, seconds = found.position, found.seconds
    table = directory.client_table(keeps, len(state.x), population, position.round)
    return position, seconds, _Journal(directory), table


def _lines(step: Step, seconds: float) -> list[dict[str, Any]]:
    """A step as lines of metrics.jsonl; what is not finite is null there."""
    lines, done = [], step.position.round
    if step.report is not None:
        assert step.rates is not None
        report = step.report
        line: dict[str, Any] = {
            "round": done,
            "split": "train",
            "loss": None if report.loss is None else finite(report.loss),
            "clients": report.clients,
            "rejected": len(report.rejected),
            "skipped": report.skipped,
            "examples": report.examples,
            "bytes_down": report.bytes_down,
            "bytes_up": report.bytes_up,
            "bytes_total": step.position.bytes_total,
            "client_lr": step.rates[0],
            "server_lr": step.rates[1],
            "seconds": round(seconds, 3),
        }
        if report.rejected:
            line["rejected_clients"] = list(report.rejected[:10])
        lines.append(line)
    if step.evaluation is not None:
        values = {name: finite(value) for name, value in step.evaluation.items()}
        lines.append({"round": done, "split": "test", **values, "seconds": round(seconds, 3)})
    return lines


def finite(value: float) -> float | None:
    """`value`, or None for JSON where it is not finite."""
    return value if isfinite(value) else None


def _result(
    config: Config,
    problem: Problem,
    position: Position,
    journal: _Journal,
    seconds: float,
    directory: RunDirectory | None,
    source: str,
    full_test: dict[str, float | None] | None,
) -> RunResult:
    x = position.state.x
    metric = next(iter(problem.metrics))
    train_lines, test_lines = journal.splits()
    every, last_every = config.eval.every, config.eval.last_every
    planned = [  # a run that was extended has evaluations that one of this length has not
        line for line in test_lines if is_evaluated(line["round"], position.round, every, last_every)
    ]
    return RunResult(
        task=config.task,
        algorithm=config.algorithm,
        rounds=position.round,
        seed=config.seed,
        train_loss=last_mean(train_lines, "loss", position.round),
        metric=metric,
        value=last_mean(planned, metric, position.round),
        params=len(x),
        x_sha256=sha256_of(x),
        seconds=round(seconds, 3),
        x=x,
        train=train_lines,
        test=test_lines,
        full_test=full_test,
        data=source,
        path=directory.path if directory else None,
        problem=problem,
    )


def last_mean(lines: list[dict[str, Any]], key: str, rounds: int) -> float | None:
    """The mean of `key` over the last 100 of `rounds`, the model before round 1 not counted."""
    recent = [line[key] for line in lines if line["round"] > max(0, rounds - LAST_ROUNDS)]
    values = [value for value in recent if value is not None]
    return sum(values) / len(values) if values else None


def sha256_of(x: Vector) -> str:
    return hashlib.sha256(x.detach().to(torch.float32).numpy().astype("<f4").tobytes()).hexdigest()


def _check_cohort(config: Config, federation: Federation) -> None:
    population = len(federation.train.ids)
    if config.clients_per_round > population:
        raise UserError(
            f"clients_per_round is {config.clients_per_round} and the federation has {population} clients; "
            f"allowed: 1 to {population}"
        )
