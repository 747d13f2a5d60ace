"""A trial is a run at one point of a grid; its directory is found again by what it computes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.analysis.summary import TRAIN_LOSS as TRAIN_LOSS
from fedopt.analysis.summary import is_trained
from fedopt.engine.evaluate import is_evaluated
from fedopt.errors import UserError, unknown
from fedopt.files import write_atomically
from fedopt.runs.config import Config
from fedopt.runs.directory import OUTCOME
from fedopt.runs.prepare import RunRequest
from fedopt.runs.records import LAST_ROUNDS, LOWER_IS_BETTER, RunRecord, mean_over_last_rounds, read_run
from fedopt.sweep.grid import Point, settings_of
from fedopt.tasks import Task

_DIGITS = 12  # of a trial's hash: thousands of trials, no two alike


class Trial(NamedTuple):
    """One run of a sweep: its resolved configuration, where it lies, and the command that runs it alone."""

    config: Config
    path: Path
    point: Point
    command: str
    tensorboard: bool = False


def trial(
    root: Path,
    task: str,
    algorithm: str,
    point: Point,
    settings: Mapping[str, Any],
    data: str = "synthetic",
    tensorboard: bool = False,
) -> Trial:
    """The trial at `point` with `settings` beside it; the same resolved configuration, the same directory."""
    chosen = {**settings, **settings_of(point)}
    request = RunRequest(task, algorithm, chosen, data, tensorboard=tensorboard)
    config = request.prepare().config
    path = root / f"{algorithm}-{config.short_hash(_DIGITS)}"
    command = request.with_settings(rounds=config.rounds).command(path)
    return Trial(config, path, point, command, tensorboard)


def recorded(trial: Trial) -> RunRecord | None:
    """What is on disk of a trial, if it has begun."""
    if not (trial.path / "config.toml").is_file():
        return None
    try:
        return read_run(trial.path)
    except UserError as error:
        raise UserError(f"{error}; restore it, or remove {trial.path} to run this trial again") from error


def mark_stopped(record: RunRecord) -> None:
    """Write down that a search has stopped a trial which was killed before it could do so itself."""
    if record.status in ("running", "failed"):
        done = record.rounds
        stopped = {"status": "pruned", "message": f"stopped after round {done}", "rounds_done": done}
        stopped["train_loss"] = score(record, TRAIN_LOSS, done)
        info = {**record.info, **{key: value for key, value in stopped.items() if value is not None}}
        write_atomically(record.path / "run.json", json.dumps(info, indent=2) + "\n")


def is_over(record: RunRecord, rounds: int) -> bool:
    """Whether a trial needs no more work for `rounds`: run to the end before, or known to diverge."""
    return record.status == "diverged" or (record.status == "done" and record.rounds >= rounds)


def score(record: RunRecord, select: str, rounds: int, last: int = LAST_ROUNDS) -> float | None:
    """What a trial is selected by, as a run of `rounds` would have it: the mean over its `last` rounds.

    None where it has none: it diverged by then, has not come that far, or went further without being
    evaluated there.
    """
    if not _reached(record, rounds):
        return None
    if select == TRAIN_LOSS:
        return mean_over_last_rounds(record.train, "loss", rounds, last)
    every, last_every = (int(record.config["eval"][name]) for name in ("every", "last_every"))
    # one that was extended has evaluations that a run of this length has not
    lines = [line for line in record.test if is_evaluated(line["round"], rounds, every, last_every)]
    evaluated = any(line["round"] == rounds for line in lines)
    return mean_over_last_rounds(lines, select, rounds, last) if evaluated else None


def shortened(record: RunRecord, rounds: int) -> RunRecord:
    """A trial that was run further, as one of `rounds` would have recorded it.

    Without evaluations where the one at the end is missing: the metric of such a run is not known.
    """
    if record.rounds <= rounds:
        return record
    every, last_every = (int(record.config["eval"][name]) for name in ("every", "last_every"))
    test = [
        line
        for line in record.test
        if line["round"] <= rounds and is_evaluated(line["round"], rounds, every, last_every)
    ]
    trained = score(record, TRAIN_LOSS, rounds) is not None
    info = {key: value for key, value in record.info.items() if key not in OUTCOME or key == "params"}
    info |= {"rounds": rounds, "status": "done" if trained else record.status}
    return record._replace(
        info=info,
        train=[line for line in record.train if line["round"] <= rounds],
        test=test if score(record, record.metric, rounds) is not None else [],
    )


def score_so_far(record: RunRecord, select: str, round: int, last: int) -> float | None:
    """What a search judges a trial by on the way: the mean over the `last` rounds before `round`.

    For a metric over the evaluations among them, or the one before if there is none.
    """
    if select == TRAIN_LOSS or not _reached(record, round):
        return score(record, select, round, last)
    lines = [line for line in record.test if 1 <= line["round"] <= round]
    recent = mean_over_last_rounds(lines, select, round, last)
    return mean_over_last_rounds(lines[-1:], select, round, round) if recent is None else recent


def _reached(record: RunRecord, round: int) -> bool:
    """Whether a trial has been trained for so many rounds, and not to no avail."""
    if record.rounds < round or (record.status == "diverged" and record.rounds <= round):
        return False
    return is_trained(record, round)


def check_selection(task: Task, select: str) -> None:
    """Refuse a name that no trial has."""
    allowed = [TRAIN_LOSS, "loss", *task.metrics]
    if select not in allowed:
        raise unknown("metric in --select", select, allowed)


def lower_is_better(task: Task, select: str) -> bool:
    if select == task.metric:
        return task.better == "lower"
    return select == TRAIN_LOSS or select in LOWER_IS_BETTER
