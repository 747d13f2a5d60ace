"""The comparison of runs as a table for the terminal, and the notes that explain it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedopt.analysis.seeds import Interval
from fedopt.analysis.summary import NOISE, TARGET_MARGIN, UNKNOWN, WORSE, Comparison, compare_runs
from fedopt.formatting import ABSENT, column_formatter, metric_unit
from fedopt.runs.records import LAST_ROUNDS, RunRecord
from fedopt.text_table import TextTable

PIPE_WIDTH = 140  # columns of a table that is written to a file or a pipe
LABEL_WIDTH = 24  # longer labels wrap in the terminal
MAX_LISTED = 6  # labels in a sentence


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
    """Return the columns of the table. The best number of each column is marked."""
    unit, summaries = metric_unit(comparison.metric), comparison.summaries
    target = "target" if comparison.target is None else unit.format_rounded(comparison.target)
    loss = column_formatter([s.train_loss and s.train_loss.mean for s in summaries])
    megabytes = column_formatter([s.bytes_total and s.bytes_total.mean / 1e6 for s in summaries])
    seconds = column_formatter([s.seconds and s.seconds.mean for s in summaries])

    def value_text(value: Interval) -> str:
        return unit.format(value.mean, value.half_width)

    def rounds_text(rounds: Interval) -> str:
        return _interval_text("{:,.0f}".format if rounds.half_width is None else "{:,.1f}".format, rounds)

    def bytes_text(value: Interval) -> str:
        return megabytes(value.mean / 1e6)

    higher = comparison.higher_is_better
    columns = [
        _column(unit.name, "value", comparison, value_text, higher),
        _column("at the end", "last_value", comparison, value_text, higher),
        _column("train loss", "train_loss", comparison, lambda value: _interval_text(loss, value)),
        _column(f"rounds to {target}", "rounds_to_target", comparison, rounds_text),
        _column("MB sent", "bytes_total", comparison, bytes_text),
        _column(f"MB to {target}", "bytes_to_target", comparison, bytes_text),
        _column("seconds", "seconds", comparison, lambda value: seconds(value.mean)),
    ]
    if any(summary.rejected and summary.rejected.mean for summary in summaries):
        columns.append(_column("rejected", "rejected", comparison, rounds_text))
    return columns


def _column(
    title: str, field: str, comparison: Comparison, to_text: Callable[[Interval], str], higher: bool = False
) -> NumberColumn:
    """Build a column. Mark its best eligible number, unless more than half of them share it."""
    cells = []
    for summary in comparison.summaries:
        value: Interval | None = getattr(summary, field)
        seeds = len(summary.group.counted)
        if value is None:
            cells.append(NumberCell(ABSENT, None, False))
        elif field.endswith("to_target") and value.n < seeds:
            cells.append(NumberCell(f"{to_text(value)} ({value.n} of {seeds} seeds)", value.mean, False))
        else:
            cells.append(NumberCell(to_text(value), value.mean, summary.eligible))
    eligible = [cell.number for cell in cells if cell.best and cell.number is not None]
    best = (max if higher else min)(eligible, default=None)
    stands_out = 2 * eligible.count(best) <= len(eligible) if best is not None else False
    marked = [cell._replace(best=stands_out and cell.best and cell.number == best) for cell in cells]
    return NumberColumn(title, higher, marked)


def _interval_text(to_text: Callable[[float], str], value: Interval) -> str:
    half_width = "" if value.half_width is None else f" ± {to_text(value.half_width)}"
    return to_text(value.mean) + half_width


def wide_console() -> Console:
    """Return a console with the width of the terminal, or with 140 columns for files and pipes."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def comparison_table(records: Sequence[RunRecord], limit: int | None = None) -> Table:
    """Build the terminal table: one row per configuration, best first, best numbers bold.

    `limit` is the maximum number of rows. `explanation` describes the columns.
    """
    comparison = compare_runs(records)
    columns = [  # at most 100 characters wide, 80 with one seed
        column for column in comparison_columns(comparison) if not column.title.startswith("MB to")
    ]
    several_seeds = comparison.has_several_seeds
    table = Table(
        title=Text(headline(records), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0) if several_seeds else (0, 1),
    )
    table.add_column("algorithm", no_wrap=True)
    for column in columns:
        table.add_column(Text(column.title.replace(" %", "%")), justify="right")
    if several_seeds:
        table.add_column("seeds", justify="right")
    for row, summary in enumerate(comparison.summaries[:limit]):
        name = Text(textwrap.fill(summary.label, LABEL_WIDTH))
        if summary.note:
            name.append("\n" + summary.note.replace(", ", "\n"), style="red" if summary.failed else "yellow")
        cells = [column.cells[row] for column in columns]
        texts = [Text(cell.text.replace(" ± ", "±"), style="bold" if cell.best else "") for cell in cells]
        table.add_row(name, *texts, *([str(len(summary.group.counted))] if several_seeds else []))
    return table


def to_text_table(table: Table, note: str = "") -> TextTable:
    """Return a terminal table as plain text, for notebooks and for `print`."""

    def text(cell: object) -> str:
        return cell.plain if isinstance(cell, Text) else str(cell)

    columns = [text(column.header).replace("\n", " ") for column in table.columns]
    rows = zip(*([text(cell) for cell in column.cells] for column in table.columns), strict=True)
    return TextTable(text(table.title or ""), columns, [list(row) for row in rows], note)


def headline(records: Sequence[RunRecord]) -> str:
    """Return task, rounds and data of the runs in one line."""
    rounds = sorted({record.rounds for record in records})
    span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return f"{records[0].info['task']}, {span} rounds, {describe_data(records)}"


def describe_data(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(record.data for record in records)
    return " and ".join("synthetic data" if name == "synthetic" else f"data {name}" for name in names)


def explanation(records: Sequence[RunRecord]) -> str:
    """Explain the columns, and which differences are within noise."""
    comparison = compare_runs(records)
    return f"{describe_columns(comparison)} {describe_noise(comparison)}".strip()


def describe_columns(comparison: Comparison) -> str:
    unit = metric_unit(comparison.metric)
    name = unit.name[0].upper() + unit.name[1:]
    text = (
        f"{name} and train loss: means over the last {LAST_ROUNDS} rounds, or over all rounds of a shorter "
        "run. At the end: the last evaluation."
    )
    if any(len(summary.group.counted) > 1 for summary in comparison.summaries):
        text += " Several seeds: mean ± half-width of the 95 % confidence interval (Student's t)."
    if any(record.rejected for record in comparison.records):
        text += (
            " Rejected: clients that were left out because their loss or update was not finite. A "
            f"configuration with rejected clients in its last {LAST_ROUNDS} rounds ranks behind all others."
        )
    if comparison.target is None:
        return text
    side = "at least" if comparison.higher_is_better else "at most"
    return (
        f"{text} Target: {side} {unit.format_rounded(comparison.target)}, within {TARGET_MARGIN * 100:.0f} % "
        "of the best run, at the first evaluation that reaches it. MB: sent in both directions, all clients. "
        f"{ABSENT}: not reached or not recorded."
    )


def describe_noise(comparison: Comparison) -> str:
    """Name the configurations that do not differ significantly from the best."""
    summaries, verdicts = comparison.summaries, comparison.verdicts()
    if len(summaries) == 1:
        return ""
    if not comparison.has_several_seeds:
        return "One seed each: differences may be noise."
    noise, unknown = (
        [s.label for s, verdict in zip(summaries, verdicts, strict=True) if verdict == kind]
        for kind in (NOISE, UNKNOWN)
    )
    parts = []
    if noise or WORSE in verdicts:
        parts.append(
            f"Within noise of the best, {comparison.best.label}: {_join(noise)} (the 95 % interval of the "
            "difference, paired by seed, contains 0)."
        )
    if unknown:
        parts.append(f"Noise unknown, fewer than two seeds in common with the best: {_join(unknown)}.")
    return " ".join(parts)


def _join(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_LISTED} more" if len(labels) > MAX_LISTED else ""
    return (", ".join(labels[:MAX_LISTED]) or "none") + more
