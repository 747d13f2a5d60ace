"""Numbers of one run, and the comparison of runs of one task: one summary per configuration.

The terminal table, the HTML page and the heat maps all show these numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fedopt.errors import ConfigError, UserError, unknown
from fedopt.intervals import Interval, confidence_interval, is_noise, paired_difference
from fedopt.reports.seeds import FAILED, SeedGroup, group_seeds, run_seed, run_state
from fedopt.runs.records import (
    LAST_ROUNDS,
    LOWER_IS_BETTER,
    RunRecord,
    averaged_rounds,
    count_rejected,
    mean_over_last_rounds,
    number,
)

TRAIN_LOSS = "train_loss"  # the paper's selection criterion: the mean over the last 100 rounds
# The number by which configurations are ranked: the last evaluation, or the paper's mean over the
# evaluations of the last 100 rounds.
Rule = Literal["last", "paper"]
RULES: Sequence[Rule] = ("last", "paper")
TARGET_MARGIN = 0.1  # the target is this fraction worse than the best result
BEST, NOISE, WORSE, UNKNOWN = "best", "within noise", "worse", "noise unknown"


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


class Summary(NamedTuple):
    """The numbers of one configuration."""

    group: SeedGroup
    position: int  # in the order of the runs; it fixes the colour of the line
    eligible: bool  # may be the best
    rule: Rule
    by_seed: Mapping[int, RunNumbers]  # of the seeds that count

    @property
    def result(self) -> Interval | None:
        """The number by which configurations are ranked."""
        return self.interval(self.result_name)

    @property
    def result_name(self) -> str:
        """The field of `RunNumbers` by which configurations are ranked."""
        return "value" if self.rule == "paper" else "last_value"

    def interval(self, name: str) -> Interval | None:
        """Return the mean of a field of `RunNumbers` over the seeds that have it, or None."""
        values = list(self.seed_values(name).values())
        return confidence_interval(values) if values else None

    def seed_values(self, name: str) -> dict[int, float]:
        """Return a field of `RunNumbers` by seed, without the seeds that do not have it."""
        values = {seed: getattr(numbers, name) for seed, numbers in self.by_seed.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def difference(self, other: Summary, name: str) -> Interval | None:
        """Return the mean difference of a field, paired by seed; None without a common seed."""
        return paired_difference(self.seed_values(name), other.seed_values(name))

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


class Comparison(NamedTuple):
    """Configurations of one task, best first.

    Configurations with rejected clients in the rounds that count follow, then unfinished and failed ones.
    """

    summaries: list[Summary]
    target: float | None  # a value near the best result; see `compare_runs`

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
    def averaged_rounds(self) -> str:
        """The rounds over which the means are computed, for example "last 100 rounds"."""
        return averaged_rounds({record.rounds for s in self.summaries for record in s.group.counted})

    @property
    def has_several_seeds(self) -> bool:
        return len(self.records) > len(self.summaries)

    def differences(self) -> list[Interval | None]:
        """Return the result of each configuration minus that of the best; None for the best itself."""
        best, name = self.best, self.best.result_name
        return [None, *(summary.difference(best, name) for summary in self.summaries[1:])]

    def verdicts(self) -> list[str]:
        """Compare each configuration with the best: best, within noise, worse, noise unknown.

        The verdict is "" for an incomplete configuration, or for all if the best one has no result.
        """
        if self.best.result is None or self.best.state:
            return [""] * len(self.summaries)
        verdicts = {True: NOISE, False: WORSE, None: UNKNOWN}
        pairs = zip(self.summaries[1:], self.differences()[1:], strict=True)
        return [BEST, *("" if other.state else verdicts[is_noise(difference)] for other, difference in pairs)]

    def clear_best(self, name: str, higher_is_better: bool) -> Summary | None:
        """Return the configuration whose field `name` differs from all others by more than noise.

        Only eligible configurations count. Return None if there is none, or nothing to compare it with.
        """
        known = [(interval.mean, s) for s in self.summaries if s.eligible and (interval := s.interval(name))]
        if len(known) < 2:
            return None
        best = (max if higher_is_better else min)(known, key=lambda pair: pair[0])[1]
        others = [summary for _, summary in known if summary is not best]
        is_clear = all(is_noise(best.difference(other, name)) is False for other in others)
        return best if is_clear else None


def parse_rule(text: str) -> Rule:
    """Return the rule with this name."""
    for rule in RULES:
        if text == rule:
            return rule
    raise unknown("rule", text, RULES)


def compare_runs(records: Sequence[RunRecord], rule: Rule = "last") -> Comparison:
    """Summarise the runs of one task by configuration, and rank them.

    The target is 10 % worse than the best result, so that every task and dataset has one. It is rounded to
    three digits: tables show exactly the value that was used.

    Args:
        records: the runs.
        rule: "last" ranks by the last evaluation, "paper" by the mean over the last 100 rounds.

    Returns:
        The configurations, best first.

    Examples:
        >>> info = {"task": "so_lr", "status": "done", "metric": "accuracy"}
        >>> runs = [
        ...     RunRecord(Path(name), info | {"algorithm": name}, {}, [], [{"round": 5, "accuracy": value}])
        ...     for name, value in (("fedavg", 0.5), ("fedadam", 0.7))
        ... ]
        >>> [summary.label for summary in compare_runs(runs).summaries], compare_runs(runs).target
        (['fedadam', 'fedavg'], 0.63)
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

    def summarise(target: float | None) -> list[Summary]:
        return [
            Summary(group, position, group in eligible, rule, _numbers_by_seed(group, target))
            for position, group in enumerate(groups)
        ]

    target = _target(summarise(None), records[0].higher_is_better)
    return Comparison(sorted(summarise(target), key=_rank), target)


def _numbers_by_seed(group: SeedGroup, target: float | None) -> dict[int, RunNumbers]:
    return {run_seed(record): run_numbers(record, target) for record in group.counted}


def _has_finite_rounds(group: SeedGroup) -> bool:
    return all(has_finite_rounds(record, record.rounds) for record in group.counted)


def _target(summaries: Sequence[Summary], higher_is_better: bool) -> float | None:
    means = [summary.result.mean for summary in summaries if summary.eligible and summary.result]
    if not means:
        return None
    best, sign = (max(means), -1) if higher_is_better else (min(means), 1)
    return float(f"{best + sign * TARGET_MARGIN * abs(best):.3g}")


def _rank(summary: Summary) -> tuple[int, bool, float]:
    order = 3 if summary.failed else 2 if summary.state else 1 if summary.has_rejections else 0
    value = summary.result.mean if summary.result else 0.0
    return order, summary.result is None, -value if summary.record.higher_is_better else value
