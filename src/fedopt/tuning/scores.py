"""Scores of trials. A sweep selects its best trial by them, and a search compares unfinished trials."""

from __future__ import annotations

from typing import Any

from fedopt.engine.evaluate import default_interval, is_evaluated
from fedopt.errors import unknown
from fedopt.reports.summary import TRAIN_LOSS, has_finite_rounds, is_trained
from fedopt.runs.directory import OUTCOME
from fedopt.runs.early_stopping import lower_is_better as metric_is_lower_better
from fedopt.runs.records import LAST_ROUNDS, RunRecord, mean_over_last_rounds
from fedopt.tasks import Task, find_task
from fedopt.tuning.trials import WorkItem, read_trial


def check_selection(task: Task, select: str) -> None:
    """Raise an error if trials of `task` do not record `select`."""
    allowed = [TRAIN_LOSS, "loss", *task.metrics]
    if select not in allowed:
        raise unknown("metric to select by", select, allowed)


def lower_is_better(task: Task, select: str) -> bool:
    return select == TRAIN_LOSS or metric_is_lower_better(select, task.metric, task.better)


def score(record: RunRecord, select: str, rounds: int, last: int = LAST_ROUNDS) -> float | None:
    """Return the score of a run: the mean of a metric over its last rounds.

    Args:
        record: the run.
        select: the metric, "loss" for the test loss, or "train_loss".
        rounds: a longer run is scored as if it had ended after this round. A run that early stopping ended
            is scored at its end.
        last: the number of last rounds.

    Returns:
        The score. None if the run diverged before, is shorter, or was not evaluated after `rounds`, or if
        clients were rejected in its last rounds.

    Examples:
        >>> lines = [{"round": 1, "loss": 4.0}, {"round": 2, "loss": 2.0}]
        >>> score(RunRecord(Path(), {"status": "done"}, {}, lines, []), "train_loss", rounds=2)
        3.0
    """
    rounds = _scored_round(record, rounds)
    return _mean(record, select, rounds, last) if has_finite_rounds(record, rounds, last) else None


def _mean(record: RunRecord, select: str, rounds: int, last: int = LAST_ROUNDS) -> float | None:
    """The mean of the finite values of `select`, or None if the run has no model after `rounds`."""
    if not _is_trained_until(record, rounds):
        return None
    if select == TRAIN_LOSS:
        return mean_over_last_rounds(record.train, "loss", rounds, last)
    lines = _planned_evaluations(record, rounds)
    is_known = any(line["round"] == rounds for line in lines)
    return mean_over_last_rounds(lines, select, rounds, last) if is_known else None


def rung_window(rung: int, rounds: int) -> int:
    """Return the number of last rounds over which a search averages at `rung`.

    At the end these are the paper's 100. Earlier it is the second half, because the first rounds depend more
    on the initial model than on the rates.
    """
    return LAST_ROUNDS if rung >= rounds else min(LAST_ROUNDS, -(-rung // 2))


def rung_score(record: RunRecord, select: str, rung: int, last: int) -> float | None:
    """Return the mean of `select` over the `last` rounds before `rung`.

    If no evaluation lies in this window, the most recent one before it counts.
    """
    rung = _scored_round(record, rung)
    is_valid = _is_trained_until(record, rung) and has_finite_rounds(record, rung, last)
    if select == TRAIN_LOSS or not is_valid:
        return score(record, select, rung, last)
    lines = [line for line in record.test if 1 <= line["round"] <= rung]
    recent = mean_over_last_rounds(lines, select, rung, last)
    return mean_over_last_rounds(lines[-1:], select, rung, rung) if recent is None else recent


def search_score(item: WorkItem, select: str) -> float | None:
    """Return the score of a trial after the rounds of a work item; lower is better, None if it diverged."""
    config, record = item.trial.config, read_trial(item.trial)
    if record is None:
        return None
    if item.until >= config.rounds:
        value = score(record, select, item.until)
    else:
        value = rung_score(record, select, item.until, rung_window(item.until, config.rounds))
    sign = 1 if lower_is_better(find_task(item.trial.request.task), select) else -1
    return None if value is None else sign * value


def truncate_record(record: RunRecord, rounds: int) -> RunRecord:
    """Return the record that a run of `rounds` rounds would have written.

    If the longer run was not evaluated after `rounds`, the result has no evaluations.
    """
    if record.rounds <= rounds:
        return record
    is_trained_run = _mean(record, TRAIN_LOSS, rounds) is not None
    info = {key: value for key, value in record.info.items() if key not in OUTCOME or key == "params"}
    info |= {"rounds": rounds, "status": "done" if is_trained_run else record.status}
    is_evaluated_run = _mean(record, record.metric, rounds) is not None
    return record._replace(
        info=info,
        train=[line for line in record.train if line["round"] <= rounds],
        test=_planned_evaluations(record, rounds) if is_evaluated_run else [],
    )


def _planned_evaluations(record: RunRecord, rounds: int) -> list[dict[str, Any]]:
    """The evaluations of a run of `rounds` rounds. An extended run has others in between."""
    every, last_every = (int(record.config["eval"][name]) for name in ("every", "last_every"))
    if every == default_interval(int(record.config.get("rounds", record.rounds))):
        every = default_interval(rounds)
    return [
        line
        for line in record.test
        if line["round"] <= rounds and is_evaluated(line["round"], rounds, every, last_every)
    ]


def _scored_round(record: RunRecord, round: int) -> int:
    return min(round, record.rounds) if record.stopped_early else round


def _is_trained_until(record: RunRecord, round: int) -> bool:
    """Whether a run has completed `round` without diverging."""
    if record.rounds < round or (record.status == "diverged" and record.rounds <= round):
        return False
    return is_trained(record, round)
