"""Compare runs of one task: one summary per configuration, with means over its seeds.

The terminal table, the HTML page and the heat maps all show these numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from fedopt.analysis.seeds import (
    FAILED,
    Interval,
    SeedGroup,
    confidence_interval,
    group_seeds,
    run_seed,
    run_state,
    within_noise,
)
from fedopt.errors import ConfigError, UserError
from fedopt.runs.records import (
    LAST_ROUNDS,
    LOWER_IS_BETTER,
    RunRecord,
    count_rejected,
    mean_over_last_rounds,
    number,
)

TRAIN_LOSS = "train_loss"  # the paper's selection criterion: the mean over the last 100 rounds
TARGET_MARGIN = 0.1  # the target is this fraction worse than the best final value
BEST, NOISE, WORSE, UNKNOWN = "best", "within noise", "worse", "noise unknown"


class Summary(NamedTuple):
    """The numbers of one configuration, averaged over its seeds; None if there is no number."""

    group: SeedGroup
    position: int  # in the order of the runs; it fixes the colour of the line
    eligible: bool  # may be marked as best
    value: Interval | None  # the task's metric over the last rounds, not scaled
    last_value: Interval | None  # the last evaluation
    train_loss: Interval | None
    rounds_to_target: Interval | None  # over the seeds that reach the target
    bytes_total: Interval | None
    bytes_to_target: Interval | None
    seconds: Interval | None
    rejected: Interval | None  # clients whose loss or update was not finite

    @property
    def label(self) -> str:
        return self.group.label

    @property
    def record(self) -> RunRecord:
        """The run of the first seed, for settings and names."""
        return self.group.records[0]

    @property
    def state(self) -> str:
        return self.group.state

    @property
    def failed(self) -> bool:
        return self.state in FAILED

    @property
    def has_rejections(self) -> bool:
        """Whether a round that counts for the result had an update or a loss that was not finite."""
        return not _has_finite_rounds(self.group)

    @property
    def note(self) -> str:
        """State and progress of an incomplete configuration, else ""."""
        state, records = self.state, self.group.records
        if not state:
            return ""
        if len(records) > 1:
            return f"{state}: {sum(run_state(r) == state for r in records)} of {len(records)} seeds"
        planned = self.record.info.get("rounds")
        return f"{state}, round {self.record.rounds}" + (f" of {planned}" if planned else "")

    def values_by_seed(self) -> dict[int, float]:
        """Return the final value of each seed."""
        values = {run_seed(record): final_value(record) for record in self.group.counted}
        return {seed: value for seed, value in values.items() if value is not None}


class Comparison(NamedTuple):
    """Configurations of one task, best first.

    Configurations with rejected clients in the rounds that count follow, then unfinished and failed ones.
    """

    summaries: list[Summary]
    target: float | None  # a final value near the best one; see `compare_runs`

    @property
    def best(self) -> Summary:
        return self.summaries[0]

    @property
    def metric(self) -> str:
        return self.best.record.metric

    @property
    def higher_is_better(self) -> bool:
        return self.best.record.higher_is_better

    @property
    def records(self) -> list[RunRecord]:
        return [record for summary in self.summaries for record in summary.group.records]

    @property
    def has_several_seeds(self) -> bool:
        return len(self.records) > len(self.summaries)

    def verdicts(self) -> list[str]:
        """Compare each configuration with the best: best, within noise, worse, noise unknown.

        The verdict is "" for an incomplete configuration, or for all if the best one has no result.
        """
        if self.best.value is None or self.best.state:
            return [""] * len(self.summaries)
        verdicts = {True: NOISE, False: WORSE, None: UNKNOWN}
        best = self.best.values_by_seed()
        others = self.summaries[1:]
        return [BEST, *("" if s.state else verdicts[within_noise(best, s.values_by_seed())] for s in others)]


def compare_runs(records: Sequence[RunRecord]) -> Comparison:
    """Summarise the runs of one task by configuration.

    The target is 10 % worse than the best final value, so that every task and dataset has one. It is
    rounded to three digits: tables show exactly the value that was used.
    """
    if not records:
        raise UserError("no runs to compare; name at least one run directory")
    paths = {str(record.info["task"]): record.path for record in reversed(records)}
    if len(paths) > 1:
        tasks = ", ".join(f"{task} ({paths[task]})" for task in sorted(paths))
        raise ConfigError(
            f"a report compares runs of one task, not of {tasks}; write one each", keys=["task"]
        )
    groups = group_seeds(records)
    done = [g for g in groups if not g.state]
    eligible = (
        [g for g in done if _has_finite_rounds(g)] or done or [g for g in groups if g.state not in FAILED]
    )
    target = _target(eligible, records[0].higher_is_better)
    summaries = [_summarise(group, i, group in eligible, target) for i, group in enumerate(groups)]
    return Comparison(sorted(summaries, key=_rank), target)


def final_value(record: RunRecord) -> float | None:
    """Return the mean of the task's metric over the last rounds."""
    return final_measure(record, record.metric)


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


def _has_finite_rounds(group: SeedGroup) -> bool:
    return all(has_finite_rounds(record, record.rounds) for record in group.counted)


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


def _target(groups: Sequence[SeedGroup], higher_is_better: bool) -> float | None:
    values = [[v for r in group.counted if (v := final_value(r)) is not None] for group in groups]
    means = [fmean(known) for known in values if known]
    if not means:
        return None
    best, sign = (max(means), -1) if higher_is_better else (min(means), 1)
    return float(f"{best + sign * TARGET_MARGIN * abs(best):.3g}")


def _summarise(group: SeedGroup, position: int, eligible: bool, target: float | None) -> Summary:
    runs = [_run_numbers(record, target) for record in group.counted]
    known = {name: [v for run in runs if (v := run[name]) is not None] for name in runs[0]}
    intervals = {name: confidence_interval(values) if values else None for name, values in known.items()}
    return Summary(group, position, eligible, **intervals)


def _run_numbers(record: RunRecord, target: float | None) -> dict[str, float | None]:
    """Return the contribution of one run to each field of a summary."""
    reached = _first_round_at(record, target)
    recorded = [number(line.get("seconds")) for line in record.train[-1:] + record.test[-1:]]
    elapsed = max((seconds for seconds in recorded if seconds is not None), default=None)
    seconds = number(record.info.get("seconds"))
    return {
        "value": final_value(record),
        "last_value": next(iter(record.curve("test", record.metric)[1][-1:]), None),
        "train_loss": final_measure(record, TRAIN_LOSS),
        "rounds_to_target": reached,
        "bytes_total": next(iter(bytes_sent(record, [record.rounds])), None),
        "bytes_to_target": None if reached is None else next(iter(bytes_sent(record, [reached])), None),
        "seconds": elapsed if seconds is None else seconds,
        "rejected": record.rejected,
    }


def _first_round_at(record: RunRecord, target: float | None) -> int | None:
    if target is None:
        return None
    for round, value in zip(*record.curve("test", record.metric), strict=True):
        if value >= target if record.higher_is_better else value <= target:
            return round
    return None


def _rank(summary: Summary) -> tuple[int, bool, float]:
    order = 3 if summary.failed else 2 if summary.state else 1 if summary.has_rejections else 0
    value = summary.value.mean if summary.value else 0.0
    return order, summary.value is None, -value if summary.record.higher_is_better else value
