"""Numbers of one run: final results, rounds to a target, traffic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from fedopt.runs.records import (
    LAST_ROUNDS,
    LOWER_IS_BETTER,
    RunRecord,
    count_rejected,
    mean_over_last_rounds,
    number,
)

TRAIN_LOSS = "train_loss"  # the paper's selection criterion: the mean over the last 100 rounds


class RunNumbers(NamedTuple):
    """The numbers of one run; None if there is no number."""

    last_value: float | None  # the task's metric at the last evaluation, not scaled
    value: float | None  # its mean over the evaluations of the last rounds, as in the paper
    train_loss: float | None  # mean over the last rounds
    rounds_to_target: float | None
    bytes_total: float | None
    bytes_to_target: float | None
    seconds: float | None
    rejected: float | None  # clients whose loss or update was not finite


def run_numbers(record: RunRecord, target: float | None) -> RunNumbers:
    """Compute the numbers of a run."""
    reached = None if target is None else confirmed_round(record, target)
    recorded = [number(line.get("seconds")) for line in record.train[-1:] + record.test[-1:]]
    elapsed = max((seconds for seconds in recorded if seconds is not None), default=None)
    seconds = number(record.info.get("seconds"))
    return RunNumbers(
        last_value=record.last_evaluation.value,
        value=final_measure(record, record.metric),
        train_loss=final_measure(record, TRAIN_LOSS),
        rounds_to_target=reached,
        bytes_total=next(iter(bytes_sent(record, [record.rounds])), None),
        bytes_to_target=None if reached is None else next(iter(bytes_sent(record, [reached])), None),
        seconds=elapsed if seconds is None else seconds,
        rejected=record.rejected,
    )


def confirmed_round(record: RunRecord, target: float) -> int | None:
    """Return the first evaluated round that reaches `target`, if the following evaluation also does.

    A single evaluation above the target may be noise. Nothing follows the last one, so it does not count.
    """
    rounds, values = record.curve("test", record.metric)
    reached = [value >= target if record.higher_is_better else value <= target for value in values]
    pairs = zip(rounds, reached, reached[1:], strict=False)
    return next((round for round, now, following in pairs if now and following), None)


def final_measure(record: RunRecord, measure: str) -> float | None:
    """Return the mean of the train loss or of a metric over the last rounds.

    Use the recorded result only if the run is done: that of a run being extended is outdated.
    """
    key = {TRAIN_LOSS: "train_loss", record.metric: "value"}.get(measure, "")
    recorded = number(record.info.get(key)) if record.status == "done" else None
    if recorded is not None:
        return recorded
    lines, name = (record.train, "loss") if measure == TRAIN_LOSS else (record.test, measure)
    return mean_over_last_rounds(lines, name, record.rounds)


def is_trained(record: RunRecord, round: int) -> bool:
    """Return whether `round` had a client with a finite update, or was not recorded.

    A run that ends with a round without finite updates is about to diverge. Its model is that of an
    earlier round.
    """
    lines = [line for line in record.train if line["round"] == round]
    last = lines[-1] if lines else {}
    return number(last.get("loss")) is not None or not (last.get("clients") or last.get("rejected"))


def has_finite_rounds(record: RunRecord, rounds: int, last: int = LAST_ROUNDS) -> bool:
    """Return whether all updates and losses of the last `last` of `rounds` rounds were finite.

    Means ignore rejected clients and rounds without a finite loss. Without this rule, a rate at which the
    difficult clients diverge could have the best mean.
    """
    lines = [line for line in record.train if max(1, rounds - last + 1) <= line["round"] <= rounds]
    has_losses = all(number(line.get("loss")) is not None for line in lines if line.get("clients"))
    return has_losses and not count_rejected(lines)


def is_higher_better(record: RunRecord, measure: str) -> bool:
    """Return the direction of `measure`. Runs record only that of the task's metric."""
    if measure == record.metric:
        return record.higher_is_better
    return measure != TRAIN_LOSS and measure not in LOWER_IS_BETTER


def bytes_sent(record: RunRecord, rounds: Sequence[int]) -> list[float]:
    """Return the total bytes sent in both directions by the end of each round; empty if not recorded."""
    recorded, totals = record.curve("train", "bytes_total")
    sent = [0.0, *totals]
    return [sent[bisect_right(recorded, round)] for round in rounds] if recorded else []
