"""Runs of one task side by side: the numbers, and their table for the terminal.

The numbers are computed here once; the HTML page shows the same columns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from fedopt.errors import UserError
from fedopt.experiments.records import LAST_ROUNDS, RunRecord, labels, number

NEAR_BEST = 0.1  # the target is what comes this near, as a fraction, to the best run's final value
FRACTIONS = ("accuracy", "recall", "precision", "f1")  # metrics shown in per cent
ABSENT = "–"

Better = Literal["higher", "lower"]


class Unit(NamedTuple):
    """How a metric is shown: raw values stay in the files, only tables and charts scale."""

    name: str
    factor: float
    digits: int
    suffix: str

    def text(self, value: float) -> str:
        return f"{value * self.factor:,.{self.digits}f}{self.suffix}"

    def target(self, value: float) -> str:
        """A target in full: it has three digits, whatever its size."""
        return f"{float(f'{value * self.factor:.3g}'):,.10g}{self.suffix}"


class Summary(NamedTuple):
    """The numbers of one run; None where there is none."""

    record: RunRecord
    label: str
    position: int  # in the list that was given: keeps a run's colour when ranks change
    value: float | None  # final metric, raw
    at_the_end: float | None  # the last evaluation
    train_loss: float | None
    rounds_to_target: float | None
    bytes_total: float | None
    bytes_to_target: float | None
    seconds: float | None

    @property
    def failed(self) -> bool:
        return self.record.status == "failed"

    @property
    def state(self) -> str:
        """What a run is that is not done, else nothing; a killed run still says that it is running."""
        return "" if self.record.status == "done" else "failed" if self.failed else "unfinished"

    @property
    def note(self) -> str:
        """How far a run came that is not done, else nothing."""
        if not self.state:
            return ""
        planned = self.record.info.get("rounds")
        return f"{self.state}, round {self.record.rounds}" + (f" of {planned}" if planned else "")


class Cell(NamedTuple):
    text: str
    number: float | None
    best: bool


class Column(NamedTuple):
    """One column of the comparison, with a cell for each summary in their order."""

    title: str
    better: Better
    cells: list[Cell]


def unit_of(metric: str) -> Unit:
    """The unit in which `metric` is shown.

    >>> unit_of("accuracy").text(0.7941), unit_of("mse").text(0.01698)
    ('79.4 %', '16.98')
    """
    name = metric.replace("_", " ")
    if metric == "mse":
        return Unit("MSE × 1000", 1000.0, 2, "")
    if any(word in metric for word in FRACTIONS):
        return Unit(name, 100.0, 1, " %")
    return Unit(name, 1.0, 4, "")


def check_comparable(records: Sequence[RunRecord]) -> None:
    """Refuse what has no common table: no runs at all, or runs of several tasks."""
    if not records:
        raise UserError("no runs to compare; name at least one run directory")
    tasks = sorted({str(record.info["task"]) for record in records})
    if len(tasks) > 1:
        raise UserError(f"one report is for one task, but the runs are of {', '.join(tasks)}")


def target_value(records: Sequence[RunRecord]) -> float | None:
    """The value that counts as "there": within 10 % of the best final value among `records`.

    Relative to the best run, so that the column says something on every task and data; rounded to three
    digits, so that what a header prints is exactly what was counted.
    """
    values = [value for record in _contenders(records) if (value := final_value(record)) is not None]
    if not values:
        return None
    best, sign = (max(values), -1) if records[0].higher_is_better else (min(values), 1)
    return float(f"{best + sign * NEAR_BEST * abs(best):.3g}")


def summarise(records: Sequence[RunRecord]) -> list[Summary]:
    """The numbers of each run, best first; failed runs come last, after unfinished ones."""
    check_comparable(records)
    target = target_value(records)
    found = [
        _summary(record, label, at, target)
        for at, (record, label) in enumerate(zip(records, labels(records), strict=True))
    ]
    return sorted(found, key=_rank)


def columns(summaries: Sequence[Summary]) -> list[Column]:
    """What the tables show, with the best number of each column marked."""
    records = [summary.record for summary in summaries]
    unit, target = unit_of(records[0].metric), target_value(records)
    goal = "target" if target is None else unit.target(target)
    better: Better = "higher" if records[0].higher_is_better else "lower"
    losses, times = [s.train_loss for s in summaries], [s.seconds for s in summaries]
    sent = [None if s.bytes_total is None else s.bytes_total / 1e6 for s in summaries]
    sent_to_target = [None if s.bytes_to_target is None else s.bytes_to_target / 1e6 for s in summaries]
    contenders = _contenders(records)
    eligible = [record in contenders for record in records]
    return [
        _column(unit.name, [s.value for s in summaries], eligible, unit.text, better),
        _column("at the end", [s.at_the_end for s in summaries], eligible, unit.text, better),
        _column("train loss", losses, eligible, fixed(losses)),
        _column(f"rounds to {goal}", [s.rounds_to_target for s in summaries], eligible, "{:,.0f}".format),
        _column("MB sent", sent, eligible, fixed(sent)),
        _column(f"MB to {goal}", sent_to_target, eligible, fixed(sent)),
        _column("seconds", times, eligible, fixed(times)),
    ]


def _column(
    title: str,
    numbers: list[float | None],
    eligible: list[bool],
    text: Callable[[float], str],
    better: Better = "lower",
) -> Column:
    """A column whose best eligible number is marked, unless most runs share it."""
    compared = [n for n, may in zip(numbers, eligible, strict=True) if may and n is not None]
    best = max(compared, default=None) if better == "higher" else min(compared, default=None)
    stands_out = 0 < 2 * compared.count(best) <= len(compared) if best is not None else False
    cells = [
        Cell(ABSENT if n is None else text(n), n, stands_out and may and n == best)
        for n, may in zip(numbers, eligible, strict=True)
    ]
    return Column(title, better, cells)


def comparison_table(records: Sequence[RunRecord]) -> Table:
    """The runs as a table for the terminal: one row each, best first, best numbers bold.

    `explanation` says in words how to read it.
    """
    summaries = summarise(records)
    shown = [
        column for column in columns(summaries) if not column.title.startswith("MB to")
    ]  # 80 columns wide
    table = Table(
        title=Text(headline(records), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("algorithm", no_wrap=True)
    for column in shown:
        table.add_column(Text(column.title.replace(" %", "%")), justify="right")
    for at, summary in enumerate(summaries):
        name = Text(summary.label)
        if summary.note:
            name.append(
                "\n" + summary.note.replace(", ", "\n"),
                style="red" if summary.failed else "yellow",
            )
        cells = [column.cells[at] for column in shown]
        table.add_row(name, *(Text(cell.text, style="bold" if cell.best else "") for cell in cells))
    return table


def headline(records: Sequence[RunRecord]) -> str:
    """Task, rounds and data of the runs, in one line that always says when the data is synthetic."""
    rounds = sorted({record.rounds for record in records})
    span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return f"{records[0].info['task']}, {span} rounds, {data_name(records)}"


def data_name(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(record.data for record in records)
    return " and ".join("synthetic data" if name == "synthetic" else f"data {name}" for name in names)


def explanation(records: Sequence[RunRecord]) -> str:
    """How the numbers of the table are to be read."""
    unit, target = unit_of(records[0].metric), target_value(records)
    name = unit.name[0].upper() + unit.name[1:]
    text = (
        f"{name} and train loss: means over the last {LAST_ROUNDS} rounds, or all if there are fewer; at the "
        "end: the last evaluation."
    )
    if target is None:
        return text
    side = "at least" if records[0].higher_is_better else "at most"
    return (
        f"{text} Target: {side} {unit.target(target)}, within {NEAR_BEST * 100:.0f} % of the best run, "
        f"counted at the first evaluation that meets it. MB: sent down and up, all clients. "
        f"{ABSENT}: not met or not recorded."
    )


def fixed(numbers: Sequence[float | None]) -> Callable[[float], str]:
    """One number of decimals for a whole column, so that three digits of its smallest number show.

    >>> show = fixed([0.8123, 12.5])
    >>> show(0.8123), show(12.5)
    ('0.812', '12.500')
    """
    sizes = [abs(n) for n in numbers if n]
    digits = min(5, max(0, 2 - math.floor(math.log10(min(sizes))))) if sizes else 0
    return lambda n: f"{n:.3g}" if abs(n) >= 1e9 else f"{n:,.{digits}f}"


def final_value(record: RunRecord) -> float | None:
    """The mean over the evaluations of the last rounds: what the run recorded, or the same so far."""
    return _recorded_or_mean(record, "value", "test", record.metric)


def bytes_at(record: RunRecord, rounds: Sequence[int]) -> list[float]:
    """What had been sent up and down, in bytes, by the end of each of `rounds`; empty if not recorded."""
    known, totals = record.curve("train", "bytes_total")
    sent = [0.0, *totals]  # nothing before the first round
    return [sent[bisect_right(known, at)] for at in rounds] if known else []


def _summary(record: RunRecord, label: str, position: int, target: float | None) -> Summary:
    reached = _first_round_at(record, target)
    lines = record.train[-1:] + record.test[-1:]
    last_seconds = max((s for line in lines if (s := number(line.get("seconds"))) is not None), default=None)
    seconds = number(record.info.get("seconds"))
    return Summary(
        record=record,
        label=label,
        position=position,
        value=final_value(record),
        at_the_end=next(iter(record.curve("test", record.metric)[1][-1:]), None),
        train_loss=_recorded_or_mean(record, "train_loss", "train", "loss"),
        rounds_to_target=reached,
        bytes_total=next(iter(bytes_at(record, [record.rounds])), None),
        bytes_to_target=None if reached is None else next(iter(bytes_at(record, [reached])), None),
        seconds=last_seconds if seconds is None else seconds,
    )


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
    if recorded is not None:
        return recorded
    first = max(1, record.rounds - LAST_ROUNDS + 1)  # round 0 is the model before training
    tail = [value for at, value in zip(*record.curve(split, key), strict=True) if at >= first]
    return fmean(tail) if tail else None


def _contenders(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that may be called best: those done, or while none is, those that did not fail."""
    done = [record for record in records if record.status == "done"]
    return done or [record for record in records if record.status != "failed"]


def _rank(summary: Summary) -> tuple[int, bool, float]:
    group = {"done": 0, "failed": 2}.get(summary.record.status, 1)
    value = summary.value or 0.0
    return group, summary.value is None, -value if summary.record.higher_is_better else value
