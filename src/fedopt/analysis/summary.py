"""Runs of one task as numbers to compare: one summary for each configuration, over its seeds.

The numbers are computed here once; the terminal's table, the HTML page and the heat maps show the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from fedopt.analysis.seeds import NOT_THE_CONFIGURATION, Group, groups, interval, seed_of
from fedopt.errors import UserError
from fedopt.formatting import setting_text
from fedopt.runs.records import LOWER_IS_BETTER, RunRecord, config_differences, mean_over_last_rounds, number

TRAIN_LOSS = "train_loss"  # what the paper selects by: the mean training loss over the last 100 rounds
NEAR_BEST = 0.1  # the target is what comes this near, as a fraction, to the best final value
FAILED = ("diverged", "failed")
LONGEST_LABEL = 3  # settings in a label: the two rates and tau

Numbers = Mapping[str, float | None]


class Summary(NamedTuple):
    """The numbers of one configuration: means over its seeds, None where there is no number."""

    group: Group
    label: str
    position: int  # in the list that was given: keeps a line's colour when ranks change
    counted: tuple[RunRecord, ...]  # the seeds that the means are over
    value: float | None  # final metric, raw
    at_the_end: float | None  # the last evaluation
    train_loss: float | None
    rounds_to_target: float | None
    met_target: int  # how many of the counted seeds came there
    bytes_total: float | None
    bytes_to_target: float | None
    seconds: float | None
    halves: Mapping[str, float]  # half the 95 % interval of a number above, where there are several seeds

    @property
    def record(self) -> RunRecord:
        """One run that stands for all where only settings and names matter."""
        return self.group.records[0]

    @property
    def state(self) -> str:
        """What is wrong with it, else nothing; see `state_of`."""
        return state_of(self.group.records)

    @property
    def failed(self) -> bool:
        return self.state in FAILED

    @property
    def note(self) -> str:
        """How far runs came that are not done, else nothing."""
        state, records = self.state, self.group.records
        if not state:
            return ""
        those = [record for record in records if state_of([record]) == state]
        if len(records) > 1:
            return f"{state}: {len(those)} of {len(records)} seeds"
        planned = those[0].info.get("rounds")
        return f"{state}, round {those[0].rounds}" + (f" of {planned}" if planned else "")

    def by_seed(self) -> dict[int, float]:
        """The final value of each counted seed."""
        values = {seed_of(record): final_value(record) for record in self.counted}
        return {seed: value for seed, value in values.items() if value is not None}


def check_comparable(records: Sequence[RunRecord]) -> None:
    """Refuse what has no common table: no runs at all, or runs of several tasks."""
    if not records:
        raise UserError("no runs to compare; name at least one run directory")
    tasks = sorted({str(record.info["task"]) for record in records})
    if len(tasks) > 1:
        first = {str(record.info["task"]): record.path for record in reversed(records)}
        found = ", ".join(f"{task} ({first[task]})" for task in tasks)
        raise UserError(f"one report is for one task, but the runs are of {found}; make one for each")


def summarise(records: Sequence[RunRecord]) -> list[Summary]:
    """The numbers of each configuration, best first; failed ones come last, after unfinished ones."""
    check_comparable(records)
    found = groups(records)
    target = _target([_mean_value(group) for group in contenders(found)], records[0].higher_is_better)
    names = _labels(found)
    return sorted((_summary(group, names[at], at, target) for at, group in enumerate(found)), key=_rank)


def target_value(summaries: Sequence[Summary]) -> float | None:
    """The value that counts as "there": within 10 % of the best final value among `summaries`.

    Relative to the best, so that the column says something on every task and data; rounded to three digits,
    so that what a header prints is exactly what was counted.
    """
    able = {id(group) for group in contenders([summary.group for summary in summaries])}
    values = [summary.value for summary in summaries if id(summary.group) in able]
    return _target(values, summaries[0].record.higher_is_better)


def _target(values: Sequence[float | None], higher_is_better: bool) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    best, sign = (max(known), -1) if higher_is_better else (min(known), 1)
    return float(f"{best + sign * NEAR_BEST * abs(best):.3g}")


def contenders(found: Sequence[Group]) -> list[Group]:
    """The configurations that may be called best: those done, or while none is, those that did not fail."""
    states = {id(group): state_of(group.records) for group in found}
    done = [group for group in found if not states[id(group)]]
    return done or [group for group in found if states[id(group)] not in FAILED]


def state_of(records: Sequence[RunRecord]) -> str:
    """The worst state among `records`: diverged, failed, pruned, unfinished, or "" where all are done.

    A run that was killed still says that it is running, so the word for that is unfinished.
    """
    states = {record.status for record in records}
    named = [state for state in (*FAILED, "pruned") if state in states]
    return named[0] if named else "" if states == {"done"} else "unfinished"


def worth_counting(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """The runs that a mean over seeds is over: those done, or while none is, all."""
    return tuple(record for record in records if record.status == "done") or tuple(records)


def final_value(record: RunRecord) -> float | None:
    """The mean over the evaluations of the last rounds: what the run recorded, or the same so far."""
    return _recorded_or_mean(record, "value", "test", record.metric)


def final_loss(record: RunRecord) -> float | None:
    """The mean train loss over the last rounds, by which the paper selects."""
    return _recorded_or_mean(record, "train_loss", "train", "loss")


def is_trained(record: RunRecord, round: int) -> bool:
    """Whether `round` trained: one without a finite client is no training, and whoever ends with one is on
    the way to diverging, though its model is that of an earlier round."""
    lines = [line for line in record.train if line["round"] == round]
    end = lines[-1] if lines else {}
    return number(end.get("loss")) is not None or not (end.get("clients") or end.get("rejected"))


def final(record: RunRecord, measure: str) -> float | None:
    """The mean over the last rounds of a measure by name: the train loss, or a metric of the evaluations."""
    if measure == TRAIN_LOSS:
        return final_loss(record)
    return (
        final_value(record)
        if measure == record.metric
        else mean_over_last_rounds(record.test, measure, record.rounds)
    )


def is_higher_better(record: RunRecord, measure: str) -> bool:
    """Which way `measure` goes, which a run says of its task's metric only."""
    if measure == record.metric:
        return record.higher_is_better
    return measure != TRAIN_LOSS and measure not in LOWER_IS_BETTER


def bytes_at(record: RunRecord, rounds: Sequence[int]) -> list[float]:
    """What had been sent up and down, in bytes, by the end of each of `rounds`; empty if not recorded."""
    known, totals = record.curve("train", "bytes_total")
    sent = [0.0, *totals]  # nothing before the first round
    return [sent[bisect_right(known, at)] for at in rounds] if known else []


def differing_settings(records: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """The settings in which configurations differ: not the seed, nor what another setting implies."""
    found = config_differences(records)
    if "server.tau" in found:  # v_{-1} = tau^2 follows tau
        found.pop("server.initial_accumulator", None)
    return {key: row for key, row in found.items() if key not in NOT_THE_CONFIGURATION}


def _labels(found: Sequence[Group]) -> list[str]:
    """The groups' labels; the points of a grid are told apart by their rates instead of directory names."""
    firsts = [group.records[0] for group in found]
    several_data = len({record.data for record in firsts}) > 1
    names = [f"{record.label} on {record.data}" if several_data else record.label for record in firsts]
    better = [group.label for group in found]
    for name in {name for name in names if names.count(name) > 1}:
        same = [at for at, other in enumerate(names) if other == name]
        telling = differing_settings([firsts[at] for at in same])
        if 1 <= len(telling) <= LONGEST_LABEL:
            for column, at in enumerate(same):
                settings = ", ".join(f"{key} {setting_text(row[column])}" for key, row in telling.items())
                better[at] = f"{name} ({settings})"
    return [
        name if better.count(name) == 1 else group.label for name, group in zip(better, found, strict=True)
    ]


def _summary(group: Group, label: str, position: int, target: float | None) -> Summary:
    counted = worth_counting(group.records)
    rows = [_numbers(record, target) for record in counted]
    spreads = {
        name: interval(known)
        for name in rows[0]
        if (known := [value for row in rows if (value := row[name]) is not None])
    }
    means = {name: spread.mean for name, spread in spreads.items()}
    return Summary(
        group=group,
        label=label,
        position=position,
        counted=counted,
        value=means.get("value"),
        at_the_end=means.get("at_the_end"),
        train_loss=means.get("train_loss"),
        rounds_to_target=means.get("rounds_to_target"),
        met_target=spreads["rounds_to_target"].n if "rounds_to_target" in spreads else 0,
        bytes_total=means.get("bytes_total"),
        bytes_to_target=means.get("bytes_to_target"),
        seconds=means.get("seconds"),
        halves={name: spread.half for name, spread in spreads.items() if spread.half is not None},
    )


def _numbers(record: RunRecord, target: float | None) -> Numbers:
    """What one run contributes to a summary, under the summary's names."""
    reached = _first_round_at(record, target)
    lines = record.train[-1:] + record.test[-1:]
    last_seconds = max((s for line in lines if (s := number(line.get("seconds"))) is not None), default=None)
    seconds = number(record.info.get("seconds"))
    return {
        "value": final_value(record),
        "at_the_end": next(iter(record.curve("test", record.metric)[1][-1:]), None),
        "train_loss": final_loss(record),
        "rounds_to_target": reached,
        "bytes_total": next(iter(bytes_at(record, [record.rounds])), None),
        "bytes_to_target": None if reached is None else next(iter(bytes_at(record, [reached])), None),
        "seconds": last_seconds if seconds is None else seconds,
    }


def _mean_value(group: Group) -> float | None:
    values = [v for record in worth_counting(group.records) if (v := final_value(record)) is not None]
    return fmean(values) if values else None


def _first_round_at(record: RunRecord, target: float | None) -> int | None:
    if target is None:
        return None
    for at, value in zip(*record.curve("test", record.metric), strict=True):
        if value >= target if record.higher_is_better else value <= target:
            return at
    return None


def _recorded_or_mean(
    record: RunRecord, name: str, split: Literal["train", "test"], key: str
) -> float | None:
    recorded = number(record.info.get(name))
    if (
        recorded is not None and record.status == "done"
    ):  # while a run is extended, its old result stands there
        return recorded
    return mean_over_last_rounds(getattr(record, split), key, record.rounds)


def _rank(summary: Summary) -> tuple[int, bool, float]:
    order = 2 if summary.failed else 1 if summary.state else 0
    value = summary.value or 0.0
    return order, summary.value is None, -value if summary.record.higher_is_better else value
