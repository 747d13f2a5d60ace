"""Tables that set our numbers beside the paper's: the rule for bold, and the forms CSV and Markdown."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedopt.reproduction.sources import suffix

NEAR_POINTS = 0.5  # bold: within so many points of the best ...
NEAR_RELATIVE = 0.005  # ... or, for an error that has no points, within this fraction of it
ROUNDING = 1e-9  # decimal points are not exact in binary
MINUS = "−"
PICTURE = "The paper shows this as a picture without numbers, so there is nothing to subtract."


@dataclass(frozen=True)
class Entry:
    """One number of ours with the paper's beside it. Values are in the paper's unit."""

    row: str
    column: str
    ours: float | None = None
    paper: float | None = None
    paper_text: str = ""  # instead of a number, such as "curve only"
    state: str = ""  # why there is no number of ours
    run: Path | None = None
    word: str = ""  # "synthetic" and the like; nothing for the paper's own data
    digits: int = 1
    unit: str = ""
    detail: str = ""  # what selected it, shown beside the number
    group: str = ""  # entries that compete for bold; nothing: no bold
    higher_is_better: bool = True
    half: float | None = None  # of the 95 % interval of ours over several seeds
    by_seed: tuple[tuple[int, float], ...] = ()  # raw values that the mean is over
    ranked: bool = True  # whether it can be the best of its group; SCAFFOLD stands beside it
    paper_bold: bool = False
    ours_bold: bool = False

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    def text(self, value: float | None, sign: bool = False) -> str:
        """A number as the paper prints it."""
        if value is None:
            return ""
        rounded = round(value, self.digits) + 0.0  # no -0.0
        plain = f"{rounded:{'+' if sign and rounded else ''},.{self.digits}f}"
        return plain.replace("-", MINUS)

    @property
    def shown(self) -> str:
        """Our number, or why there is none."""
        spread = "" if self.half is None else f" ± {self.text(self.half)}"
        return f"{self.text(self.ours)}{spread}" if self.ours is not None else self.state

    @property
    def paper_shown(self) -> str:
        return self.text(self.paper) or self.paper_text


@dataclass(frozen=True)
class Table:
    """Entries in rows and columns."""

    title: str
    entries: tuple[Entry, ...]
    corner: str = ""  # what the rows are
    note: str = ""
    compare: bool = True  # whether the paper prints numbers for it
    on_page: bool = True  # False: in the CSV file alone

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(entry.row for entry in self.entries))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(entry.column for entry in self.entries))

    def cell(self, row: str, column: str) -> Entry | None:
        return next((e for e in self.entries if e.row == row and e.column == column), None)

    def word_of(self, row: str) -> str:
        """What to add to "ours" in a row."""
        return suffix([entry.word for entry in self.entries if entry.row == row])


def axis_label(value: float) -> str:
    """A value of a grid, as axes show it."""
    return f"{value:g}".replace("-", MINUS)


_SYMBOLS = {"client_lr": "η_l", "server_lr": "η", "tau": "τ"}


def axis_title(axis: str, value: float | None = None) -> str:
    """An axis of a grid, or a value of it, in log10.

    >>> axis_title("client_lr"), axis_title("tau", -3.0)
    ('log10 η_l', 'log10 τ = −3')
    """
    name = f"log10 {_SYMBOLS[axis]}"
    return name if value is None else f"{name} = {axis_label(value)}"


def chosen_text(point: Mapping[str, float], remark: str = "") -> str:
    """The rates that a selection came to, as the detail of a cell.

    >>> chosen_text({"client_lr": 2.0, "server_lr": -0.5})
    '(log10 η_l = 2, log10 η = −0.5)'
    """
    words = [axis_title(axis, value) for axis, value in point.items()]
    return f"({', '.join([*words, *([remark] if remark else [])])})"


def near_best(
    values: Sequence[tuple[float | None, bool]], higher_is_better: bool, relative: bool
) -> list[bool]:
    """Which of (value, may be the best) are bold: nearer than half a point, or half a per cent, to the best.

    Exactly half a point is not near: the paper leaves 57.0 beside 57.5 and 85.1 beside 85.6 plain.

    >>> near_best([(85.1, True), (85.6, True), (85.2, True), (None, True)], True, False)
    [False, True, True, False]
    """
    ranked = [value for value, may in values if may and value is not None]
    if not ranked:
        return [False for _ in values]
    sign = 1 if higher_is_better else -1
    best = sign * max(sign * value for value in ranked)
    reach = (NEAR_RELATIVE * abs(best) if relative else NEAR_POINTS) - ROUNDING
    return [value is not None and sign * (best - value) < reach for value, _ in values]


def with_bold(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries with bold worked out for our numbers in each group; the paper's is as it prints it."""
    marked = list(entries)
    for group in dict.fromkeys(entry.group for entry in entries if entry.group):
        at = [index for index, entry in enumerate(entries) if entry.group == group]
        first = entries[at[0]]
        pairs = [(entries[i].ours, entries[i].ranked) for i in at]
        for i, bold in zip(at, near_best(pairs, first.higher_is_better, "MSE" in first.unit), strict=True):
            marked[i] = replace(entries[i], ours_bold=bold)
    return tuple(marked)


def to_csv(tables: Sequence[Table], directory: Path) -> str:
    """Every entry as a line; the column of our numbers says when they are not from the paper's data."""
    entries = [(table, entry) for table in tables for entry in table.entries]
    ours = "ours" + suffix([entry.word for _, entry in entries if entry.ours is not None or entry.state])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["table", "row", "column", "unit", "paper", ours, "data", "difference", "paper_bold", "ours_bold"]
    writer.writerow([*head, "half_95", "state", "detail", "run"])
    for table, e in entries:
        paper = e.paper_text if e.paper is None else _plain(e.paper)
        numbers = [paper, _plain(e.ours), e.word or "as in the paper", _plain(e.difference)]
        flags = [str(flag).lower() for flag in (e.paper_bold, e.ours_bold)]
        run = relative_link(e.run, directory)
        why = [_plain(e.half), e.state, e.detail, run]
        writer.writerow([table.title, e.row, e.column, e.unit, *numbers, *flags, *why])
    return text.getvalue()


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def to_markdown(tables: Sequence[Table], directory: Path) -> str:
    """The tables of the page as Markdown, links relative to `directory`."""
    parts = []
    for table in tables:
        if not table.on_page or not table.entries:
            continue
        columns = table.columns
        lead = [table.corner, ""] if table.compare else [table.corner]
        lines = [
            f"### {table.title}",
            "",
            _row([*lead, *columns]),
            _row(["---"] * (len(lead) + len(columns))),
        ]
        for row in table.rows:
            cells = [table.cell(row, column) for column in columns]
            if table.compare:
                lines.append(
                    _row([row, "paper", *(_bold(e.paper_shown, e.paper_bold) if e else "" for e in cells)])
                )
                ours = [row, "ours" + table.word_of(row)]
            else:
                ours = [row + table.word_of(row)]
            lines.append(_row([*ours, *(_linked(e, directory) for e in cells)]))
            if table.compare:
                differences = [e.text(e.difference, sign=True) if e else "" for e in cells]
                lines.append(_row([row, "difference", *differences]))
        parts.append("\n".join([*lines, *(["", table.note] if table.note else [])]))
    return "\n\n".join(parts) + "\n"


def relative_link(run: Path | None, directory: Path) -> str:
    """A run directory as seen from `directory`, with slashes."""
    return "" if run is None else Path(os.path.relpath(run, directory)).as_posix()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold and text else text


def _linked(entry: Entry | None, directory: Path) -> str:
    if entry is None or not entry.shown:
        return ""
    text = _bold(entry.shown, entry.ours_bold)
    linked = f"[{text}]({relative_link(entry.run, directory)})" if entry.run else text
    return f"{linked} {entry.detail}".strip()
