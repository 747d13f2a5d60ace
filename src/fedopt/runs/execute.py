"""Execute a run: start or resume it, train, and record its metrics, checkpoints and result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from fedopt.algorithms import Vector
from fedopt.data import Federation
from fedopt.engine.evaluate import evaluate_clients, means
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.loop import Position, Step, TrainingPlan, start, train
from fedopt.engine.problem import Problem
from fedopt.engine.round import OverwrittenRows, TrainingSetup
from fedopt.engine.running_statistics import running_statistics
from fedopt.engine.sampling import SAMPLERS
from fedopt.engine.worker import initial_model, single_thread
from fedopt.errors import ConfigError, Diverged, FedoptError
from fedopt.files import Log, no_log
from fedopt.runs import tensorboard as event_files
from fedopt.runs.build_problem import build_plan
from fedopt.runs.callbacks import STOP, Callback
from fedopt.runs.config import Config
from fedopt.runs.directory import RunDirectory
from fedopt.runs.fingerprint import make_fingerprint
from fedopt.runs.interrupts import deferred_interrupts
from fedopt.runs.loggers import RunLogger
from fedopt.runs.metrics_log import finite_or_none
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.recorder import RunRecorder
from fedopt.runs.result import RunResult
from fedopt.runs.shared_data import SharedData, open_data
from fedopt.runs.small_runs import SMALL_RUN_SECONDS, training_seconds
from fedopt.version import __version__


def execute(
    prepared: PreparedRun,
    executor: Executor,
    *,
    out: Path | None = None,
    command: str = "",
    on_step: Callback | None = None,
    log: Log = no_log,
    tensorboard: bool = False,
    data: SharedData | None = None,
    until: int | None = None,
    small_runs_serially: bool = False,
    loggers: Sequence[RunLogger] = (),
) -> RunResult:
    """Execute a run. With `out`, write a run directory, or resume the run in it.

    `on_step` is called after every round. If it returns `STOP`, the run ends with a checkpoint and the status
    "stopped"; a later call resumes the run. With `until`, the same happens after that round, with the status
    "pruned". Evaluations are those of a run of `config.rounds` rounds. `data` is the opened data of an
    earlier run in this process. If the run fails, diverges or is interrupted, run.json records it. An
    interrupted round is undone, and the checkpoint is that of the last finished round. With
    `small_runs_serially`, a small run does not use `executor` (see `small_runs`).
    """
    if tensorboard:
        _check_event_files(out)
    config, problem = prepared.config, prepared.problem
    data = data or open_data(problem, config.eval.sample)
    _check_cohort(config, data.federation)
    initial = prepared.initial or initial_model(problem)
    directory = None
    if out:
        is_new = not (out / "config.toml").exists()
        fingerprint = make_fingerprint(config, problem, initial, data.federation, is_new)
        info = _run_info(prepared, data.federation, command)
        directory = RunDirectory(out, config, info, initial.fixed, fingerprint)
    fixed = directory.fixed if directory else initial.fixed
    prepared = prepared.with_fixed_state(fixed)
    run: _Run | None = None
    try:
        plan = build_plan(config, data.examples)
        first = _first_position(prepared.problem, initial.x, plan)
        recorder = RunRecorder(prepared, data, directory, first, loggers, event_file=tensorboard, log=log)
        run = _Run(recorder, data, plan, log)
        if recorder.is_finished:
            log(f"{out} is finished: {recorder.position.round} rounds")
            return recorder.result(directory.info.get("full_test") if directory else None)
        if directory:
            directory.record_clients(lambda: data.clients)
            directory.restart(config.rounds, command)
        if small_runs_serially and run.is_small:
            log("this run is too small to benefit from worker processes, so it runs in this one")
            executor = Serial()
        return run.train(executor, config.rounds if until is None else min(until, config.rounds), on_step)
    except KeyboardInterrupt:
        if run:
            run.undo_round()
            run.recorder.record_interrupt()
        elif directory and not directory.done:  # interrupted while the run was opened
            directory.update(status="interrupted")
        raise
    except Diverged as error:
        if run:
            run.recorder.record_end("diverged", str(error))
        raise
    except FedoptError as error:
        if directory and not directory.done:  # a finished run keeps its result
            directory.update(status="failed", message=str(error))
        raise
    finally:
        try:
            if run:
                run.recorder.close()
        finally:
            if directory:
                directory.close()


def _run_info(prepared: PreparedRun, federation: Federation, command: str) -> dict[str, object]:
    """Return the contents of run.json at the start of a new run."""
    config = prepared.config
    return {
        "fedopt": __version__,
        "task": config.task,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "rounds": config.rounds,
        "status": "running",
        "command": command,
        "data": federation.source,
        "metric": prepared.problem.metric,
        "better": prepared.better,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _first_position(problem: Problem, x: Vector, plan: TrainingPlan) -> Position:
    """Return the position before the first round."""
    state = problem.algorithm().init(x)
    if running_statistics(state) is not None:
        state = state._replace(running_statistics=initial_model(problem).statistics)
    return start(state, plan)


class _Run:
    """The training of a run, from its current position to its end."""

    def __init__(self, recorder: RunRecorder, data: SharedData, plan: TrainingPlan, log: Log) -> None:
        self.recorder = recorder
        self._data = data
        self._plan = plan
        self._log = log
        self._overwritten: OverwrittenRows | None = None  # once training has begun

    @property
    def is_small(self) -> bool:
        """Whether the remaining rounds are too few to benefit from worker processes."""
        config, position = self.recorder.config, self.recorder.position
        seconds = training_seconds(
            config.rounds - position.round,
            config.clients_per_round,
            self.recorder.problem.local,
            self._data.federation,
            len(position.state.x),
            sum(array[:1].size for array in self._data.federation.train.client(0)),
        )
        return seconds < SMALL_RUN_SECONDS

    def train(self, executor: Executor, last: int, on_step: Callback | None) -> RunResult:
        """Train up to round `last`."""
        recorder, config = self.recorder, self.recorder.config
        began = time.monotonic() - recorder.seconds
        if recorder.position.round >= last < config.rounds:
            return recorder.pause("pruned")
        if recorder.position.round:
            self._log(f"continuing after round {recorder.position.round}")
        executor.start()  # workers start while the sample is read or generated
        executor.load(recorder.problem, self._data.federation, self._data.sample)
        setup = TrainingSetup(
            recorder.problem.algorithm(),
            executor,
            self._data.federation.train,
            SAMPLERS[config.sampling],
            config.clients_per_round,
            config.seed,
            recorder.table,
        )
        self._overwritten = setup.overwritten
        with closing(train(setup, self._plan, recorder.position)) as steps:
            for step in () if recorder.has_stopped_improving else steps:
                with deferred_interrupts():
                    recorder.add(step, time.monotonic() - began)
                    setup.overwritten.clear()
                stops = on_step is not None and self._call(on_step, step) is STOP
                if recorder.is_stalled:
                    continue  # the next step raises the error
                if recorder.has_stopped_improving:
                    break
                if step.position.round == last < config.rounds:
                    return recorder.pause("pruned")
                if stops and step.position.round < config.rounds:
                    return recorder.pause("stopped")
        if executor.fallback_reason:
            self._log(f"clients were trained one after the other: {executor.fallback_reason}")
        return self._finish(executor, began)

    def _call(self, on_step: Callback, step: Step) -> object:
        try:
            return on_step(step)
        except FedoptError:
            self.recorder.checkpoint()
            raise

    def _finish(self, executor: Executor, began: float) -> RunResult:
        """Record the final result, after the last round or early stopping."""
        recorder, stop, message = self.recorder, self.recorder.config.stop, ""
        done = recorder.position.round
        if done < recorder.config.rounds:
            recorder.checkpoint()
            message = f"early stopping: {stop.metric} has not improved in {stop.patience} evaluations"
            self._log(f"{message}; stopped after round {done}")
        full_test = self._measure_full_test(executor) if recorder.config.eval.final == "full" else None
        recorder.seconds = time.monotonic() - began
        return recorder.finish(full_test, message)

    def _measure_full_test(self, executor: Executor) -> dict[str, float | None]:
        clients, state = len(self._data.federation.test.ids), self.recorder.position.state
        self._log(f"measuring the full test set of {clients:,} clients")
        with single_thread():
            parts = evaluate_clients(executor, state.x, "test", clients, running_statistics(state))
        return {name: finite_or_none(value) for name, value in means(parts).items()}

    def undo_round(self) -> None:
        """Undo an interrupted round."""
        if self._overwritten:
            self._overwritten.restore()


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
