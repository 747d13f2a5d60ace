"""Tables for the terminal, notebooks and pages, and the comparison of runs as such a table."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fedopt.formatting import ABSENT, TextTable, column_formatter, count_noun, metric_unit
from fedopt.intervals import Interval
from fedopt.reports.summary import TARGET_MARGIN, Comparison, Summary
from fedopt.runs.records import LAST_ROUNDS, RunRecord

PIPE_WIDTH = 140  # columns of a table that is written to a file or a pipe
TITLE_WIDTH = 10  # longer titles of columns wrap
GAP = 2  # between columns: one space of padding and one of the box
LABEL_WIDTH = 24  # longer labels of configurations wrap in the terminal
# Columns of a comparison that a narrow terminal may leave out, the most important first.
KEPT_LONGEST = ("mean of", "rounds to", "seeds", "train loss", "MB sent", "seconds")


class Cell(NamedTuple):
    text: str
    sort_key: float | str = ""  # "" for an absent value, which is last in both orders
    best: bool = False
    note: str = ""  # below the text on a page
    tooltip: str = ""


class Column(NamedTuple):
    title: str
    cells: Sequence[Cell]
    drop_order: int = 0  # columns with a higher number are left out first; those with 0 stay
    explanation: str = ""  # below a table in the terminal, and at the heading on a page
    first_order: str = "ascending"  # on the first click on a page

    @classmethod
    def of(cls, title: str, texts: Iterable[str], drop_order: int = 0, explanation: str = "") -> Column:
        """Return a column of plain texts."""
        return cls(title, [Cell(text) for text in texts], drop_order, explanation)

    def wrapped_title(self, width: int) -> str:
        """Return the title in lines of at most `width`, unless a cell or a word is longer."""
        words, cells = map(len, self.title.split()), (len(cell.text) for cell in self.cells)
        return textwrap.fill(self.title, max([width, *words, *cells]))

    def width(self, title_width: int = TITLE_WIDTH) -> int:
        lines = self.wrapped_title(title_width).split("\n")
        return max(map(len, [*lines, *(cell.text for cell in self.cells)]))


class Table(NamedTuple):
    """Labels, columns beside them, and a caption."""

    title: str
    label_title: str
    labels: Sequence[Text]
    columns: Sequence[Column]
    caption: str = ""

    @property
    def label_width(self) -> int:
        return max(len(line) for text in self.labels for line in [self.label_title, *text.plain.split("\n")])

    def fit(self, width: int = PIPE_WIDTH) -> RichTable:
        """Return the columns that fit `width`: titles wrap, cells do not, and some columns are left out.

        Explanations of the columns and the caption are below, with the names of the other columns.
        """
        shown, title_width = list(self.columns), TITLE_WIDTH

        def is_too_wide() -> bool:
            return self.label_width + sum(GAP + column.width(title_width) for column in shown) > width

        if is_too_wide():
            title_width = 1
        while is_too_wide() and any(column.drop_order for column in shown):
            shown.remove(max(shown, key=lambda column: column.drop_order))
        titles = [column.title for column in shown]
        hidden = [column.title for column in self.columns if column.title not in titles]
        wider = f"Wider terminals also show: {', '.join(hidden)}." if hidden else ""
        table = RichTable(
            title=Text(self.title, style="bold"),
            title_justify="left",
            caption=Text(" ".join(filter(None, [_explain(shown), self.caption, wider])), style="dim"),
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, GAP - 1, 0, 0),
            show_edge=False,
        )
        table.add_column(self.label_title, no_wrap=True)
        for column in shown:
            table.add_column(Text(column.wrapped_title(title_width)), justify="right", no_wrap=True)
        for row, label in enumerate(self.labels):
            cells = [column.cells[row] for column in shown]
            table.add_row(label, *(Text(cell.text, style="bold" if cell.best else "") for cell in cells))
        return table

    def split(self, width: int) -> list[Table]:
        """Divide the table into several that fit `width`, each with all labels."""
        groups: list[list[Column]] = [[]]
        for column in self.columns:
            used = self.label_width + sum(GAP + other.width() for other in groups[-1])
            if groups[-1] and used + GAP + column.width() > width:
                groups.append([])
            groups[-1].append(column)
        return [self._replace(columns=group) for group in groups]

    def text(self, note: str = "") -> TextTable:
        """Return all columns as plain text, for notebooks and for `print`. `note` follows the caption."""
        heads = [self.label_title, *(column.title for column in self.columns)]
        rows = [
            [label.plain, *(column.cells[row].text for column in self.columns)]
            for row, label in enumerate(self.labels)
        ]
        notes = [" ".join(filter(None, [_explain(self.columns), self.caption])), note]
        return TextTable(self.title, heads, rows, "\n".join(filter(None, notes)))


def _explain(columns: Sequence[Column]) -> str:
    parts = [(column.title, column.explanation) for column in columns if column.explanation]
    return " ".join(f"{title[0].upper()}{title[1:]}: {text}." for title, text in parts)


def wide_console() -> Console:
    """Return a console with the width of the terminal. Files and pipes have COLUMNS, or 140 columns."""
    console = Console()
    has_width = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if has_width else Console(width=PIPE_WIDTH)


def print_sentences(console: Console, *sentences: str) -> None:
    """Print sentences, wrapped at words in a terminal and on one line each in a file or pipe."""
    for sentence in sentences:
        console.print(sentence, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def comparison_table(comparison: Comparison, limit: int | None = None) -> Table:
    """Return one row per configuration, best first. `limit` is the maximum number of rows."""
    columns = [
        column._replace(
            title=column.title.replace(" %", "%"),
            cells=[cell._replace(text=cell.text.replace(" ± ", "±")) for cell in column.cells],
        )
        for column in comparison_columns(comparison)
        if not column.title.startswith("MB to")
    ]
    labels = [_label_text(summary) for summary in comparison.summaries[:limit]]
    bold = "Bold: best, and distinguishable from all others." if comparison.has_several_seeds else ""
    return Table(describe_runs(comparison.records), "algorithm", labels, columns, bold)


def _label_text(summary: Summary) -> Text:
    text = Text(textwrap.fill(summary.label, LABEL_WIDTH))
    if summary.note:
        text.append("\n" + summary.note.replace(", ", "\n"), style="red" if summary.failed else "yellow")
    return text


def comparison_columns(comparison: Comparison) -> list[Column]:
    """Return the columns of the terminal and of the page, the result first.

    A number is marked if it is the best of its column and differs from all others by more than noise.
    """
    unit, summaries = metric_unit(comparison.metric), comparison.summaries
    target = "target" if comparison.target is None else unit.format_rounded(comparison.target)
    averaged, several = comparison.averaged_rounds, comparison.has_several_seeds
    interval = "; ±: 95 % confidence interval over seeds" if several else ""
    missing = f"{ABSENT}: not reached or not confirmed"

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

    def column(
        title: str, name: str, to_text: Callable[[Interval], str], explanation: str, higher: bool = False
    ) -> Column:
        cells, best = [], comparison.clear_best(name, higher)
        for summary in summaries:
            value, seeds = summary.interval(name), len(summary.group.counted)
            if value is None:
                cells.append(Cell(ABSENT))
            elif name.endswith("to_target") and value.n < seeds:
                cells.append(Cell(f"{to_text(value)} ({value.n} of {seeds} seeds)", value.mean))
            else:
                cells.append(Cell(to_text(value), value.mean, best=summary is best))
        drop = next((at for at, start in enumerate(KEPT_LONGEST, 1) if title.startswith(start)), 0)
        return Column(title, cells, drop, explanation, "descending" if higher else "ascending")

    higher = comparison.higher_is_better
    paper = "" if averaged == f"last {LAST_ROUNDS} rounds" else f"; the paper uses the last {LAST_ROUNDS}"
    results = [
        column(unit.name, "last_value", value_text, f"last evaluation{interval}", higher),
        column(f"mean of {averaged}", "value", value_text, f"of their evaluations{paper}", higher),
    ]
    if comparison.best.rule == "paper":
        results.reverse()
    if several:
        results.insert(1, _difference_column(comparison))
    reached = (
        f"first evaluation within {TARGET_MARGIN * 100:.0f}\N{NO-BREAK SPACE}% of the best, confirmed by the "
        f"following one; {missing}"
    )
    columns = [
        *results,
        column("train loss", "train_loss", lambda value: _interval_text(loss, value), f"mean of {averaged}"),
        column(f"rounds to {target}", "rounds_to_target", rounds_text, reached),
        column("MB sent", "bytes_total", bytes_text, "both directions, all clients"),
        column(f"MB to {target}", "bytes_to_target", bytes_text, f"sent until then; {missing}"),
        column("seconds", "seconds", lambda value: seconds(value.mean), ""),
    ]
    if any(record.rejected for record in comparison.records):
        note = (
            "clients whose loss or update was not finite. A configuration with rejected clients in its last "
        )
        note += f"{LAST_ROUNDS} rounds ranks behind all others"
        columns.append(column("rejected", "rejected", rounds_text, note))
    if several:
        counts = [len(summary.group.counted) for summary in summaries]
        cells = [Cell(str(count), count) for count in counts]
        columns.append(Column("seeds", cells, 1 + KEPT_LONGEST.index("seeds"), first_order="descending"))
    return columns


def _difference_column(comparison: Comparison) -> Column:
    """Return the differences to the best, paired by seed, with their verdicts."""
    unit, higher = metric_unit(comparison.metric), comparison.higher_is_better
    cells = []
    for difference, verdict in zip(comparison.differences(), comparison.verdicts(), strict=True):
        if difference is None:
            cells.append(Cell(ABSENT, note=verdict))
        else:
            text = unit.format_difference(difference.mean, difference.half_width)
            cells.append(Cell(text, difference.mean, note=verdict))
    points = ", in percentage points" if unit.suffix == " %" else ""
    order = "descending" if higher else "ascending"
    return Column("difference to best", cells, 0, f"paired by seed{points}", order)


def _interval_text(to_text: Callable[[float], str], value: Interval) -> str:
    half_width = "" if value.half_width is None else f" ± {to_text(value.half_width)}"
    return to_text(value.mean) + half_width


def describe_runs(records: Sequence[RunRecord]) -> str:
    """Return task, rounds and data of the runs in one line."""
    rounds = sorted({record.rounds for record in records})
    span = count_noun(rounds[0], "round") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
    return f"{records[0].info['task']}, {span}, {describe_data(records)}"


def describe_data(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(record.data for record in records)
    return " and ".join("synthetic data" if name == "synthetic" else f"data {name}" for name in names)
