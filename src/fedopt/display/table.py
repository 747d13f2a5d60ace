"""The comparison of runs as a table for the terminal, and the notes that explain it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from fedopt.analysis.seeds import Interval
from fedopt.analysis.summary import TARGET_MARGIN, Comparison, Summary
from fedopt.display.fitting_table import PIPE_WIDTH, TextColumn, fitting_table
from fedopt.formatting import ABSENT, column_formatter, count_noun, metric_unit
from fedopt.runs.records import LAST_ROUNDS, RunRecord
from fedopt.text_table import TextTable

LABEL_WIDTH = 24  # longer labels wrap in the terminal
# Columns that a narrow terminal may leave out, the most important first.
KEPT_LONGEST = ("mean of", "rounds to", "seeds", "train loss", "MB sent", "seconds")


class NumberCell(NamedTuple):
    text: str
    number: float | None
    best: bool


class NumberColumn(NamedTuple):
    """One column of the comparison, with a cell for each summary."""

    title: str
    higher_is_better: bool
    cells: list[NumberCell]


def comparison_columns(comparison: Comparison) -> list[NumberColumn]:
    """Return the columns of the table, the result first.

    A number is marked if it is the best of its column and differs from all others by more than noise.
    """
    unit, summaries = metric_unit(comparison.metric), comparison.summaries
    target = "target" if comparison.target is None else unit.format_rounded(comparison.target)

    def formatter(name: str, factor: float = 1.0) -> Callable[[float], str]:
        intervals = [summary.interval(name) for summary in summaries]
        return column_formatter([interval and interval.mean * factor for interval in intervals])

    loss, megabytes, seconds = formatter("train_loss"), formatter("bytes_total", 1e-6), formatter("seconds")

    def value_text(value: Interval) -> str:
        return unit.format(value.mean, value.half_width)

    def rounds_text(rounds: Interval) -> str:
        return _interval_text("{:,.0f}".format if rounds.half_width is None else "{:,.1f}".format, rounds)

    def bytes_text(value: Interval) -> str:
        return megabytes(value.mean / 1e6)

    higher = comparison.higher_is_better
    results = [
        _column(unit.name, "last_value", comparison, value_text, higher),
        _column(f"mean of {comparison.averaged_rounds}", "value", comparison, value_text, higher),
    ]
    if comparison.best.rule == "paper":
        results.reverse()
    if comparison.has_several_seeds:
        results.insert(1, _difference_column(comparison))
    columns = [
        *results,
        _column("train loss", "train_loss", comparison, lambda value: _interval_text(loss, value)),
        _column(f"rounds to {target}", "rounds_to_target", comparison, rounds_text),
        _column("MB sent", "bytes_total", comparison, bytes_text),
        _column(f"MB to {target}", "bytes_to_target", comparison, bytes_text),
        _column("seconds", "seconds", comparison, lambda value: seconds(value.mean)),
    ]
    if any(record.rejected for record in comparison.records):
        columns.append(_column("rejected", "rejected", comparison, rounds_text))
    return columns


def _column(
    title: str, name: str, comparison: Comparison, to_text: Callable[[Interval], str], higher: bool = False
) -> NumberColumn:
    """Build the column of a field of `RunNumbers`."""
    best = comparison.clear_best(name, higher)
    cells = []
    for summary in comparison.summaries:
        value, seeds = summary.interval(name), len(summary.group.counted)
        if value is None:
            cells.append(NumberCell(ABSENT, None, False))
        elif name.endswith("to_target") and value.n < seeds:
            cells.append(NumberCell(f"{to_text(value)} ({value.n} of {seeds} seeds)", value.mean, False))
        else:
            cells.append(NumberCell(to_text(value), value.mean, summary is best))
    return NumberColumn(title, higher, cells)


def _difference_column(comparison: Comparison) -> NumberColumn:
    """Build the column of differences to the best, paired by seed, in the unit of the metric."""
    unit = metric_unit(comparison.metric)
    cells = []
    for difference in comparison.differences():
        mean, half_width, _ = difference or (None, None, 0)
        text = ABSENT if mean is None else unit.format_difference(mean, half_width)
        cells.append(NumberCell(text, mean, False))
    return NumberColumn("difference to best", comparison.higher_is_better, cells)


def _interval_text(to_text: Callable[[float], str], value: Interval) -> str:
    half_width = "" if value.half_width is None else f" ± {to_text(value.half_width)}"
    return to_text(value.mean) + half_width


def comparison_table(comparison: Comparison, limit: int | None = None, width: int = PIPE_WIDTH) -> Table:
    """Build the terminal table: one row per configuration, best first, with captions for its columns.

    `limit` is the maximum number of rows. Columns that do not fit `width` are left out.
    """
    labels = [_label_text(summary) for summary in comparison.summaries[:limit]]
    columns = [column for column in comparison_columns(comparison) if not column.title.startswith("MB to")]
    if comparison.has_several_seeds:
        columns.append(_seeds_column(comparison))
    title, caption = describe_runs(comparison.records), describe_columns(comparison)
    shown = [_text_column(column, explain_column(column.title, comparison)) for column in columns]
    return fitting_table(title, "algorithm", labels, shown, width, caption)


def _label_text(summary: Summary) -> Text:
    text = Text(textwrap.fill(summary.label, LABEL_WIDTH))
    if summary.note:
        text.append("\n" + summary.note.replace(", ", "\n"), style="red" if summary.failed else "yellow")
    return text


def _seeds_column(comparison: Comparison) -> NumberColumn:
    counts = [len(summary.group.counted) for summary in comparison.summaries]
    return NumberColumn("seeds", True, [NumberCell(str(count), count, False) for count in counts])


def _text_column(column: NumberColumn, explanation: str) -> TextColumn:
    order = next((at for at, start in enumerate(KEPT_LONGEST, 1) if column.title.startswith(start)), 0)
    cells = [cell.text.replace(" ± ", "±") for cell in column.cells]
    bold = [cell.best for cell in column.cells]
    return TextColumn(column.title.replace(" %", "%"), cells, bold, order, explanation=explanation)


def to_text_table(table: Table, note: str = "") -> TextTable:
    """Return a terminal table as plain text, for notebooks and for `print`. `note` follows its caption."""

    def text(cell: object) -> str:
        return cell.plain if isinstance(cell, Text) else str(cell)

    columns = [text(column.header).replace("\n", " ") for column in table.columns]
    rows = zip(*([text(cell) for cell in column.cells] for column in table.columns), strict=True)
    notes = [part for part in (text(table.caption or ""), note) if part]
    return TextTable(text(table.title or ""), columns, [list(row) for row in rows], "\n".join(notes))


def describe_runs(records: Sequence[RunRecord]) -> str:
    """Return task, rounds and data of the runs in one line."""
    rounds = sorted({record.rounds for record in records})
    span = count_noun(rounds[0], "round") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
    return f"{records[0].info['task']}, {span}, {describe_data(records)}"


def describe_data(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(record.data for record in records)
    return " and ".join("synthetic data" if name == "synthetic" else f"data {name}" for name in names)


def describe_columns(comparison: Comparison) -> str:
    """Return notes about all columns."""
    notes = []
    if comparison.has_several_seeds:
        points = " in percentage points" if metric_unit(comparison.metric).suffix == " %" else ""
        notes.append(
            f"±: 95 % confidence interval over seeds. Difference: paired by seed{points}. Bold: best, and "
            "distinguishable from all others."
        )
    if any(record.rejected for record in comparison.records):
        notes.append(
            "Rejected: clients whose loss or update was not finite. A configuration with rejected clients in "
            f"its last {LAST_ROUNDS} rounds ranks behind all others."
        )
    return " ".join(notes)


def explain_column(title: str, comparison: Comparison) -> str:
    """Return a sentence about one column; "" if its title is clear."""
    unit = metric_unit(comparison.metric)
    if title == unit.name:
        return f"{title[0].upper()}{title[1:]}: last evaluation."
    if title.startswith("mean of"):
        is_paper = title.endswith(f"last {LAST_ROUNDS} rounds")
        paper = "" if is_paper else f"; the paper uses the last {LAST_ROUNDS} rounds"
        return f"M{title[1:]}: of their evaluations{paper}."
    if title == "train loss":
        return "Train loss: mean of the same rounds."
    if title.startswith("rounds to") and comparison.target is not None:
        return (
            f"Rounds to {unit.format_rounded(comparison.target)}: within {TARGET_MARGIN * 100:.0f} % of the "
            f"best, confirmed by the following evaluation; {ABSENT}: not reached or not confirmed."
        ).replace(" %", "\N{NO-BREAK SPACE}%")
    return "MB: both directions." if title == "MB sent" else ""
