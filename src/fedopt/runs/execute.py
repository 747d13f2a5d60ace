"""Execute a run: start or resume it, train, record its metrics, write checkpoints and its result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedopt.algorithms import Algorithm, State, Vector
from fedopt.data import Federation
from fedopt.engine.client_state import ClientMemory, MemoryTable
from fedopt.engine.evaluate import evaluate_clients, is_evaluated, means
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.loop import Position, Step, TrainingPlan, start, train
from fedopt.engine.problem import Problem
from fedopt.engine.round import OverwrittenRows, TrainingSetup
from fedopt.engine.running_statistics import running_statistics
from fedopt.engine.sampling import SAMPLERS
from fedopt.engine.worker import InitialModel, build_module, initial_model, single_thread
from fedopt.errors import ConfigError, Diverged, FedoptError
from fedopt.files import Log, no_log
from fedopt.models.flat import Flat
from fedopt.runs import tensorboard as event_files
from fedopt.runs.build_problem import build_plan
from fedopt.runs.callbacks import STOP, Callback
from fedopt.runs.config import Config
from fedopt.runs.directory import RunDirectory
from fedopt.runs.early_stopping import has_stopped_improving, lower_is_better
from fedopt.runs.fingerprint import make_fingerprint
from fedopt.runs.interrupts import deferred_interrupts
from fedopt.runs.loggers import RunLogger
from fedopt.runs.metrics_log import MetricsLine, MetricsLog, finite_or_none, metrics_lines
from fedopt.runs.records import flatten, mean_over_last_rounds
from fedopt.runs.result import RunResult, vector_sha256
from fedopt.runs.shared_data import SharedData, open_data
from fedopt.runs.small_runs import SMALL_RUN_SECONDS, training_seconds
from fedopt.version import __version__


def execute(
    config: Config,
    problem: Problem,
    executor: Executor,
    *,
    out: Path | None = None,
    command: str = "",
    better: str = "higher",
    initial: InitialModel | None = None,
    on_step: Callback | None = None,
    log: Log = no_log,
    tensorboard: bool = False,
    data: SharedData | None = None,
    until: int | None = None,
    small_runs_serially: bool = False,
    loggers: Sequence[RunLogger] = (),
) -> RunResult:
    """Run `config` on `executor`. With `out`, write a run directory, or resume the run in it.

    `on_step` is called after every round. If it returns `STOP`, the run ends with a checkpoint and the status
    "stopped"; a later call resumes the run. With `until`, the same happens after that round, with the status
    "pruned". Evaluations are those of a run of `config.rounds` rounds. `data` is the opened data of an
    earlier run in this process. If the run fails, diverges or is interrupted, run.json records it. An
    interrupted round is undone, and the checkpoint is that of the last finished round. With
    `small_runs_serially`, a small run does not use `executor` (see `small_runs`).
    """
    if tensorboard:
        _check_event_files(out)
    data = data or open_data(problem, config.eval.sample)
    _check_cohort(config, data.federation)
    info = {
        "fedopt": __version__,
        "task": config.task,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "rounds": config.rounds,
        "status": "running",
        "command": command,
        "data": data.federation.source,
        "metric": problem.metric,
        "better": better,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    initial = initial or initial_model(problem)
    directory = None
    if out:
        is_new = not (out / "config.toml").exists()
        fingerprint = make_fingerprint(config, problem, initial, data.federation, is_new)
        directory = RunDirectory(out, config, info, initial.fixed, fingerprint)
    fixed = directory.fixed if directory else initial.fixed
    run = _Run(config, replace(problem, fixed=fixed), executor, data, directory, better, log)
    try:
        run.open(initial.x, tensorboard, loggers)
        if run.is_finished:
            return run.finished_result()
        if directory:
            directory.record_clients(lambda: data.clients)
            directory.restart(config.rounds, command)
        if small_runs_serially and run.is_small:
            log("this run is too small to benefit from worker processes, so it runs in this one")
            run.executor = Serial()
        return run.train(config.rounds if until is None else min(until, config.rounds), on_step)
    except KeyboardInterrupt:
        run.record_interrupt()
        raise
    except Diverged as error:
        run.record_end("diverged", str(error))
        raise
    except FedoptError as error:
        if directory and not directory.done:  # a finished run keeps its result
            directory.update(status="failed", message=str(error))
        raise
    finally:
        run.close()


class _Run:
    """One execution of a run: its position, metrics and files."""

    algorithm: Algorithm
    plan: TrainingPlan
    position: Position
    table: ClientMemory
    metrics: MetricsLog | None = None
    overwritten: OverwrittenRows | None = None  # once training has begun

    def __init__(
        self,
        config: Config,
        problem: Problem,
        executor: Executor,
        data: SharedData,
        directory: RunDirectory | None,
        better: str,
        log: Log,
    ) -> None:
        self.config = config
        self.problem = problem
        self.executor = executor
        self.data = data
        self.directory = directory
        self.log = log
        self.seconds = 0.0
        self._stops_at_lower = lower_is_better(config.stop.metric, problem.metric, better)
        self._saved_round = 0  # of the newest checkpoint

    def open(self, x: Vector, event_file: bool, loggers: Sequence[RunLogger]) -> None:
        """Start at round 0, or at the newest checkpoint of the run directory."""
        self.algorithm = self.problem.algorithm()
        self.plan = build_plan(self.config, self.data.examples)
        state = self.algorithm.init(x)
        if running_statistics(state) is not None:
            state = state._replace(running_statistics=initial_model(self.problem).statistics)
        self.position = start(state, self.plan)
        self.table = self._restore(self.directory, state) if self.directory else MemoryTable()
        settings = flatten(self.config.document())
        self.metrics = MetricsLog(self.directory, event_file, loggers, settings)

    def _restore(self, directory: RunDirectory, state: State) -> ClientMemory:
        checkpoint, warnings = directory.restore(state)
        for warning in warnings:
            self.log(warning)
        if checkpoint:
            self.position, self.seconds = checkpoint.position, checkpoint.seconds
            self._saved_round = checkpoint.position.round
        population = len(self.data.federation.train.ids)
        return directory.client_table(self.algorithm.keeps, len(state.x), population, self.position.round)

    @property
    def is_finished(self) -> bool:
        if self.directory is None or not self.directory.done:
            return False
        return self.position.round >= self.config.rounds or self._has_stopped_improving

    @property
    def is_small(self) -> bool:
        """Whether the remaining rounds are too few to benefit from worker processes."""
        seconds = training_seconds(
            self.config.rounds - self.position.round,
            self.config.clients_per_round,
            self.problem.local,
            self.data.federation,
            len(self.position.state.x),
            sum(array[:1].size for array in self.data.federation.train.client(0)),
        )
        return seconds < SMALL_RUN_SECONDS

    def finished_result(self) -> RunResult:
        assert self.directory is not None
        self.log(f"{self.directory.path} is finished: {self.position.round} rounds")
        return self._result(self.directory.info.get("full_test"))

    def train(self, last: int, on_step: Callback | None) -> RunResult:
        """Train up to round `last`."""
        config, position = self.config, self.position
        began = time.monotonic() - self.seconds
        if position.round >= last < config.rounds:
            return self._pause("pruned")
        if position.round:
            self.log(f"continuing after round {position.round}")
        self.executor.start()  # workers start while the sample is read or generated
        self.executor.load(self.problem, self.data.federation, self.data.sample)
        setup = TrainingSetup(
            self.algorithm,
            self.executor,
            self.data.federation.train,
            SAMPLERS[config.sampling],
            config.clients_per_round,
            config.seed,
            self.table,
        )
        self.overwritten = setup.overwritten
        with closing(train(setup, self.plan, position)) as steps:
            for step in () if self._has_stopped_improving else steps:
                with deferred_interrupts():
                    self._record(step, time.monotonic() - began)
                    setup.overwritten.clear()
                stops = on_step is not None and self._call(on_step, step) is STOP
                if self._is_stalled:
                    continue  # the next step raises the error
                if self._has_stopped_improving:
                    break
                if step.position.round == last < config.rounds:
                    return self._pause("pruned")
                if stops and step.position.round < config.rounds:
                    return self._pause("stopped")
        if self.executor.fallback_reason:
            self.log(f"clients were trained one after the other: {self.executor.fallback_reason}")
        return self._finish(began)

    def _call(self, on_step: Callback, step: Step) -> object:
        try:
            return on_step(step)
        except FedoptError:
            self.checkpoint()
            raise

    @property
    def _has_stopped_improving(self) -> bool:
        return has_stopped_improving(
            self._planned_evaluations(self.config.rounds), self.config.stop, self._stops_at_lower
        )

    def _finish(self, began: float) -> RunResult:
        """Record the final result, after the last round or early stopping."""
        config, done = self.config, self.position.round
        outcome: dict[str, Any] = {"status": "done"}
        if done < config.rounds:
            self.checkpoint()
            stop = config.stop
            message = f"early stopping: {stop.metric} has not improved in {stop.patience} evaluations"
            self.log(f"{message}; stopped after round {done}")
            outcome |= {"message": message, "rounds": config.rounds, "rounds_done": done}
        full_test = self._measure_full_test() if config.eval.final == "full" else None
        self.seconds = time.monotonic() - began
        result = self._result(full_test)
        if self.directory:
            summary = {key: value for key, value in result.summary().items() if key != "run"}
            self.directory.update(**summary | outcome)
        return result

    def _record(self, step: Step, seconds: float) -> None:
        """Append the metrics of a step, and write a checkpoint if it is due."""
        assert self.metrics is not None
        self.position, self.seconds = step.position, seconds
        for line in metrics_lines(step, seconds):
            self.metrics.add(line)
        done = step.position.round
        if done % self.config.checkpoint.every == 0 or done == self.config.rounds:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write a checkpoint, unless this round has one or the run is about to be given up."""
        if self.directory and self.position.round > self._saved_round and not self._is_stalled:
            self.directory.commit(self.position, self.seconds)
            self._saved_round = self.position.round

    @property
    def _is_stalled(self) -> bool:
        """Whether too many rounds in a row had no client with a finite loss and update."""
        return self.position.stalled >= self.config.patience

    def _pause(self, status: str) -> RunResult:
        """Stop before the last round; a later execution resumes here."""
        self.checkpoint()
        self.record_end(status, f"stopped after round {self.position.round}")
        return self._result(None)

    def record_end(self, status: str, message: str) -> None:
        """Write to run.json why an unfinished run ended, with its numbers so far."""
        if self.directory:
            result = self._result(None)
            self.directory.update(
                status=status,
                message=message,
                rounds_done=result.rounds,
                train_loss=result.train_loss,
                value=result.value,
                seconds=result.seconds,
                rejected=result.rejected,
            )

    def record_interrupt(self) -> None:
        """Undo the interrupted round and write a checkpoint of the last finished one."""
        if self.overwritten:
            self.overwritten.restore()
        if self.directory is None or self.directory.done:
            return
        if self.metrics is None:  # interrupted while the run was opened
            self.directory.update(status="interrupted")
            return
        self.checkpoint()
        self.record_end("interrupted", f"interrupted after round {self.position.round}")

    def close(self) -> None:
        try:
            if self.metrics:
                self.metrics.close()
        finally:
            if self.directory:
                self.directory.close()

    def _measure_full_test(self) -> dict[str, float | None]:
        clients = len(self.data.federation.test.ids)
        self.log(f"measuring the full test set of {clients:,} clients")
        with single_thread():
            parts = evaluate_clients(
                self.executor,
                self.position.state.x,
                "test",
                clients,
                running_statistics(self.position.state),
            )
        return {name: finite_or_none(value) for name, value in means(parts).items()}

    def _planned_evaluations(self, rounds: int) -> list[MetricsLine]:
        """The evaluations of a run of `rounds` rounds. An extended run has others, which do not count."""
        assert self.metrics is not None
        every, last_every = self.config.eval.every, self.config.eval.last_every
        return [line for line in self.metrics.test if is_evaluated(line["round"], rounds, every, last_every)]

    def _result(self, full_test: dict[str, float | None] | None) -> RunResult:
        assert self.metrics is not None
        config, x, rounds = self.config, self.position.state.x.clone(), self.position.round
        metric = self.problem.metric
        return RunResult(
            task=config.task,
            algorithm=config.algorithm,
            rounds=rounds,
            seed=config.seed,
            train_loss=mean_over_last_rounds(self.metrics.train, "loss", rounds),
            metric=metric,
            value=mean_over_last_rounds(self._planned_evaluations(rounds), metric, rounds),
            params=len(x),
            x_sha256=vector_sha256(x),
            seconds=round(self.seconds, 3),
            x=x,
            train=self.metrics.train,
            test=self.metrics.test,
            full_test=full_test,
            data=self.data.federation.source,
            path=self.directory.path if self.directory else None,
            problem=self._final_problem(),
        )

    def _final_problem(self) -> Problem:
        """The problem whose fixed state includes the latest running statistics."""
        statistics = running_statistics(self.position.state)
        if statistics is None:
            return self.problem
        flat = Flat(build_module(self.problem), self.problem.buffers)
        assert flat.statistics is not None
        flat.statistics.write(statistics)
        return replace(self.problem, fixed=flat.fixed())


def _check_event_files(out: Path | None) -> None:
    if out is None:
        raise ConfigError(
            "tensorboard writes into the run directory; name one with out", keys=("tensorboard",)
        )
    event_files.require()


def _check_cohort(config: Config, federation: Federation) -> None:
    population = len(federation.train.ids)
    if config.clients_per_round > population:
        raise ConfigError(
            f"clients_per_round is {config.clients_per_round} and the federation has {population} clients; "
            f"allowed: 1 to {population}",
            keys=("clients_per_round",),
        )
