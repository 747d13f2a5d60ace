"""Terminal tables that fit the width: titles wrap, cells do not, and optional columns are left out."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 140  # columns of a table that is written to a file or a pipe
TITLE_WIDTH = 10  # longer titles of columns wrap
GAP = 2  # between columns: one space of padding and one of the box


class TextColumn(NamedTuple):
    title: str
    cells: Sequence[str]
    bold: Sequence[bool] = ()  # by row; empty: no cell is bold
    drop_order: int = 0  # columns with a higher number are left out first; those with 0 stay
    title_width: int = TITLE_WIDTH  # a longer title wraps, unless a cell or a word is longer
    explanation: str = ""  # a sentence below the table, if the column is shown

    @property
    def wrapped_title(self) -> str:
        words = map(len, self.title.split())
        return textwrap.fill(self.title, max([self.title_width, *words, *map(len, self.cells)]))

    @property
    def width(self) -> int:
        return max(map(len, [*self.wrapped_title.split("\n"), *self.cells]))


def wide_console() -> Console:
    """Return a console with the width of the terminal. Files and pipes have COLUMNS, or 140 columns."""
    console = Console()
    has_width = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if has_width else Console(width=PIPE_WIDTH)


def split_columns(columns: Sequence[TextColumn], label_width: int, width: int) -> list[list[TextColumn]]:
    """Divide columns into groups that fit `width` beside the labels, for a table of several parts."""
    groups: list[list[TextColumn]] = [[]]
    for column in columns:
        used = label_width + sum(GAP + other.width for other in groups[-1])
        if groups[-1] and used + GAP + column.width > width:
            groups.append([])
        groups[-1].append(column)
    return groups


def print_sentences(console: Console, *sentences: str) -> None:
    """Print sentences, wrapped at words in a terminal and on one line each in a file or pipe."""
    for sentence in sentences:
        console.print(sentence, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def fitting_table(
    title: str,
    label_title: str,
    labels: Sequence[Text],
    columns: Sequence[TextColumn],
    width: int = PIPE_WIDTH,
    caption: str = "",
) -> Table:
    """Build a table of labels and the columns that fit `width`.

    Explanations of its columns and the caption are below it, with the names of the other columns.
    """
    label_lines = [line for label in labels for line in label.plain.split("\n")]
    label_width = max(map(len, [label_title, *label_lines]))
    shown = list(columns)
    if label_width + sum(GAP + column.width for column in shown) > width:
        shown = [column._replace(title_width=1) for column in shown]
    while label_width + sum(GAP + column.width for column in shown) > width:
        last = max(shown, key=lambda column: column.drop_order, default=None)
        if last is None or last.drop_order == 0:
            break
        shown.remove(last)
    titles = [column.title for column in shown]
    hidden = [column.title for column in columns if column.title not in titles]
    notes = [*(column.explanation for column in shown), caption]
    notes += [f"Wider terminals also show: {', '.join(hidden)}."] if hidden else []
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        caption=Text(" ".join(filter(None, notes)), style="dim"),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        show_edge=False,
    )
    table.add_column(label_title, no_wrap=True)
    for column in shown:
        table.add_column(Text(column.wrapped_title), justify="right", no_wrap=True)
    for row, label in enumerate(labels):
        cells = [
            Text(column.cells[row], style="bold" if column.bold and column.bold[row] else "")
            for column in shown
        ]
        table.add_row(label, *cells)
    return table
