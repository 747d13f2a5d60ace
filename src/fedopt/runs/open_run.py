"""Open a run: start it or read its newest checkpoint, and record how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from fedopt.algorithms import Vector
from fedopt.data import Federation
from fedopt.engine.executors.base import Executor
from fedopt.engine.initial_model import initial_model
from fedopt.engine.loop import Position, TrainingPlan, TrainingSetup, start
from fedopt.engine.problem import Problem
from fedopt.engine.running_statistics import running_statistics
from fedopt.engine.sampling import SAMPLERS
from fedopt.engine.server import initial_state
from fedopt.errors import ConfigError, Diverged, FedoptError
from fedopt.files import Log, no_log
from fedopt.formatting import count_noun
from fedopt.remote.location import Location
from fedopt.runs import tensorboard as event_files
from fedopt.runs.build_problem import build_plan
from fedopt.runs.config import Config
from fedopt.runs.directory import RunDirectory
from fedopt.runs.fingerprint import make_fingerprint
from fedopt.runs.loggers import RunLogger
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.recorder import RunRecorder
from fedopt.runs.remote_run import LocalRun, open_location
from fedopt.runs.shared_data import SharedData, open_data
from fedopt.version import __version__


@dataclass
class OpenedRun:
    """A run at its current position."""

    recorder: RunRecorder
    data: SharedData
    plan: TrainingPlan
    command: str

    def restart(self) -> None:
        """Set the status to running."""
        if directory := self.recorder.directory:
            directory.record_clients(lambda: self.data.clients)
            directory.restart(self.recorder.config.rounds, self.command)

    def setup(self, executor: Executor) -> TrainingSetup:
        """Return the setup of the rounds on an executor."""
        recorder, config = self.recorder, self.recorder.config
        return TrainingSetup(
            recorder.problem.algorithm(),
            executor,
            self.data.federation.train,
            SAMPLERS[config.sampling],
            config.clients_per_round,
            config.seed,
            recorder.table,
        )


@contextmanager
def open_run(
    prepared: PreparedRun,
    *,
    out: Location | None = None,
    command: str = "",
    log: Log = no_log,
    warn: Log = no_log,
    tensorboard: bool = False,
    data: SharedData | None = None,
    loggers: Sequence[RunLogger] = (),
    checkpoint_seconds: float = 0.0,
) -> Iterator[OpenedRun]:
    """Open a run for training. With `out`, create its directory, or resume the run in it.

    Checkpoints are at least `checkpoint_seconds` apart, whatever the configuration says.
    If the body of the `with` statement fails, diverges or is interrupted, run.json records it.
    """
    if tensorboard:
        _check_event_files(out)
    with (
        open_location(out, log) as local,
        _open_local(prepared, local, command, warn, tensorboard, data, loggers, checkpoint_seconds) as run,
    ):
        yield run


@contextmanager
def _open_local(
    prepared: PreparedRun,
    local: LocalRun | None,
    command: str,
    warn: Log,
    tensorboard: bool,
    data: SharedData | None,
    loggers: Sequence[RunLogger],
    checkpoint_seconds: float,
) -> Iterator[OpenedRun]:
    config, problem = prepared.config, prepared.problem
    data = data or open_data(problem, config.eval.sample)
    _check_cohort(config, data.federation)
    initial = prepared.initial or initial_model(problem)
    directory = None
    if local:
        is_new = not (local.path / "config.toml").exists()
        fingerprint = make_fingerprint(config, problem, initial, data.federation, is_new)
        info = _run_info(prepared, data.federation, command)
        directory = RunDirectory(
            local.path, config, info, initial.fixed, fingerprint, local.on_write, local.url
        )
    fixed = directory.fixed if directory else initial.fixed
    prepared = prepared.with_fixed_state(fixed)
    run: OpenedRun | None = None
    try:
        plan = build_plan(config, data.examples)
        first = _first_position(prepared.problem, initial.x, plan)
        recorder = RunRecorder(
            prepared,
            data,
            directory,
            first,
            loggers,
            event_file=tensorboard,
            warn=warn,
            checkpoint_seconds=checkpoint_seconds,
        )
        run = OpenedRun(recorder, data, plan, command)
        yield run
    except KeyboardInterrupt:
        if run:
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
    state = initial_state(problem.algorithm(), x)
    if running_statistics(state) is not None:
        state = state._replace(running_statistics=initial_model(problem).statistics)
    return start(state, plan)


def _check_event_files(out: Location | None) -> None:
    if out is None:
        raise ConfigError(
            "tensorboard writes into the run directory; name one with out", keys=("tensorboard",)
        )
    event_files.require()


def _check_cohort(config: Config, federation: Federation) -> None:
    population = len(federation.train.ids)
    if config.clients_per_round > population:
        raise ConfigError(
            f"clients_per_round is {config.clients_per_round} and the federation has "
            f"{count_noun(population, 'client')}; allowed: 1 to {population}",
            keys=("clients_per_round",),
        )
