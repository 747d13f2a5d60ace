"""Trials: one training run per point of a grid and seed.

The directory of a trial follows from its configuration, so a repeated sweep finds its earlier trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.algorithms import AlgorithmChoice
from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import RunDirectoryError, UserError
from fedopt.references import file_name
from fedopt.runs.config import Config
from fedopt.runs.prepare import RunRequest
from fedopt.runs.records import RunRecord, read_run
from fedopt.tasks import Task
from fedopt.tuning.grid import Point, describe_point, point_settings

_HASH_DIGITS = 12  # enough to distinguish thousands of trials


class Trial(NamedTuple):
    """One run of a sweep: what to run, in which directory, at which point of the grid."""

    request: RunRequest
    config: Config  # resolved from the request
    path: Path
    point: Point

    @property
    def command(self) -> str:
        """The command that reproduces this run."""
        return self.request.command(self.path)

    @property
    def key(self) -> str:
        """The path as text, which identifies a trial."""
        return str(self.path)

    @property
    def label(self) -> str:
        """The algorithm and the point, for messages."""
        return f"{self.config.algorithm} {describe_point(self.point)}"


class WorkItem(NamedTuple):
    """Run a trial until round `until` is complete. The trial resumes from its newest checkpoint."""

    trial: Trial
    until: int


def make_trial(
    root: Path,
    task: str | Task,
    algorithm: AlgorithmChoice,
    point: Point,
    settings: Mapping[str, Any],
    data: str | None = None,
    tensorboard: bool = False,
    log: tuple[str, ...] = (),
    executor: str | None = None,
) -> Trial:
    """Resolve the configuration of a point, and name its directory.

    Args:
        root: the directory of all trials. The number of rounds does not change the name in it.
        task: the task.
        algorithm: the algorithm.
        point: values by axis of the grid, in log10 for client_lr, server_lr and tau.
        settings: other configuration with dotted keys.
        data: see `fedopt.RunRequest`, as for the following.
        tensorboard: whether event files are written.
        log: names of other loggers.
        executor: its name.

    Returns:
        The trial, which has not run.

    Examples:
        >>> trial = make_trial(Path("runs"), "so_lr", "fedavg", {"client_lr": 1.0}, {"rounds": 5})
        >>> trial.label, trial.config.client.lr
        ('fedavg client_lr=1', 10.0)
    """
    settings = {**settings, **point_settings(point)}
    options = ExecutorOptions(executor)
    request = RunRequest(task, algorithm, settings, data, executor=options, tensorboard=tensorboard, log=log)
    config = request.prepare().config
    path = root / f"{file_name(config.algorithm)}-{config.short_hash(_HASH_DIGITS)}"
    return Trial(request.with_settings(rounds=config.rounds), config, path, point)


def read_trial(trial: Trial) -> RunRecord | None:
    """Read the run directory of a trial.

    Args:
        trial: the trial.

    Returns:
        Its record, or None if it has not started.

    Examples:
        >>> read_trial(make_trial(Path("nowhere"), "so_lr", "fedavg", {}, {})) is None
        True
    """
    if not (trial.path / "config.toml").is_file():
        return None
    try:
        return read_run(trial.path)
    except UserError as error:
        raise RunDirectoryError(
            f"{error}; restore it, or remove {trial.path} to run this trial again", path=trial.path
        ) from error


def is_finished(record: RunRecord, rounds: int) -> bool:
    """Whether a trial has been run for all rounds, has diverged, or was ended by early stopping.

    Args:
        record: the record of the trial.
        rounds: the number of rounds.

    Returns:
        Whether it needs no further round.

    Examples:
        >>> is_finished(RunRecord(Path(), {"status": "done"}, {}, [{"round": 5}], []), 10)
        False
    """
    is_done = record.status == "done" and (record.rounds >= rounds or record.stopped_early)
    return record.status == "diverged" or is_done


def is_complete(record: RunRecord, item: WorkItem) -> bool:
    """Whether the files of a trial already contain all that a work item asks for.

    If the last round of the item is the newest one, a process that was killed may not have recorded its
    evaluation. The trial is then resumed at its newest checkpoint.
    """
    rounds, stop = item.trial.config.rounds, item.trial.config.stop
    if record.stopped_early and record.config.get("stop") != stop.model_dump():
        return False
    is_ended = record.rounds > item.until or (record.rounds == item.until and record.status == "pruned")
    return is_finished(record, rounds) or (item.until < rounds and is_ended)
