"""Tables that compare our numbers with the paper's, the rule for bold numbers, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedopt_paper.data_sources import label_suffix

NEAR_POINTS = 0.5  # bold: closer to the best than this many points ...
NEAR_RELATIVE = 0.005  # ... or, for errors, than this fraction of the best
ROUNDING = 1e-9  # tolerance for decimal fractions in binary
MINUS = "−"
_LEADING = ("table", "row", "column", "unit", "paper")
_TRAILING = ("data", "difference", "paper_bold", "ours_bold", "half_95", "state", "detail", "run")


@dataclass(frozen=True)
class ComparisonCell:
    """One of our numbers and the paper's number, both in the paper's unit."""

    row: str
    column: str
    ours: float | None = None
    paper: float | None = None
    paper_text: str = ""  # replaces a number, such as "curve only"
    state: str = ""  # the reason if there is no number of ours
    run: Path | None = None
    label: str = ""  # of the data, such as "synthetic"; "" for the paper's data
    digits: int = 1
    unit: str = ""
    detail: str = ""  # shown after the number, such as the selected rates
    group: str = ""  # cells of one group are compared for bold; "": never bold
    higher_is_better: bool = True
    half_width: float | None = None  # of our 95 % confidence interval over several seeds
    by_seed: tuple[tuple[int, float], ...] = ()  # raw value of each seed
    ranked: bool = True  # whether it can be the best of its group
    comparable: bool = True  # whether the difference from the paper's number means something
    paper_bold: bool = False
    ours_bold: bool = False

    @property
    def difference(self) -> float | None:
        if self.ours is None or self.paper is None or not self.comparable:
            return None
        return self.ours - self.paper

    def format(self, value: float | None, sign: bool = False) -> str:
        """Format a number as in the paper."""
        if value is None:
            return ""
        rounded = round(value, self.digits) + 0.0  # no -0.0
        return f"{rounded:{'+' if sign and rounded else ''},.{self.digits}f}".replace("-", MINUS)

    @property
    def ours_text(self) -> str:
        """Our number with its interval, or the reason why there is none."""
        if self.ours is None:
            return self.state
        interval = "" if self.half_width is None else f" ± {self.format(self.half_width)}"
        return self.format(self.ours) + interval

    @property
    def paper_shown(self) -> str:
        return self.format(self.paper) or self.paper_text

    @property
    def difference_text(self) -> str:
        return self.format(self.difference, sign=True)


@dataclass(frozen=True)
class ComparisonTable:
    """Cells in rows and columns."""

    title: str
    cells: tuple[ComparisonCell, ...]
    corner: str = ""  # heading of the row names
    note: str = ""
    compare: bool = True  # whether the paper prints numbers for it
    on_page: bool = True  # False: in the CSV file only

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def has_differences(self, row: str) -> bool:
        return any(cell.difference is not None for cell in self.cells if cell.row == row)

    def cell(self, row: str, column: str) -> ComparisonCell | None:
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)

    def row_cells(self, row: str) -> list[ComparisonCell | None]:
        return [self.cell(row, column) for column in self.columns]

    def row_suffix(self, row: str) -> str:
        """The data labels of a row, to follow "ours"."""
        return label_suffix([cell.label for cell in self.cells if cell.row == row])


def log10_text(value: float) -> str:
    """Format a value of a grid, which is a decimal logarithm."""
    return f"{value:g}".replace("-", MINUS)


_SYMBOLS = {"client_lr": "η_l", "server_lr": "η", "tau": "τ"}


def axis_text(axis: str, value: float | None = None) -> str:
    """Name an axis of a grid, or one value on it.

    >>> axis_text("client_lr"), axis_text("tau", -3.0)
    ('log10 η_l', 'log10 τ = −3')
    """
    name = f"log10 {_SYMBOLS[axis]}"
    return name if value is None else f"{name} = {log10_text(value)}"


def point_text(point: Mapping[str, float], remark: str = "") -> str:
    """Format selected rates for the detail of a cell.

    >>> point_text({"client_lr": 2.0, "server_lr": -0.5})
    '(log10 η_l = 2, log10 η = −0.5)'
    """
    parts = [axis_text(axis, value) for axis, value in point.items()]
    return f"({', '.join([*parts, *([remark] if remark else [])])})"


def near_best(
    values: Sequence[tuple[float | None, bool]], higher_is_better: bool, relative: bool
) -> list[bool]:
    """Mark the values that are close to the best. A value is given as (value, whether it can be the best).

    The distance must be less than half a point, or half a percent if `relative`. Exactly half a point is not
    close: the paper prints 57.0 next to 57.5 and 85.1 next to 85.6 without bold.

    >>> near_best([(85.1, True), (85.6, True), (85.2, True), (None, True)], True, False)
    [False, True, True, False]
    """
    candidates = [value for value, can_be_best in values if can_be_best and value is not None]
    if not candidates:
        return [False for _ in values]
    sign = 1 if higher_is_better else -1
    best = sign * max(sign * value for value in candidates)
    distance = (NEAR_RELATIVE * abs(best) if relative else NEAR_POINTS) - ROUNDING
    return [value is not None and sign * (best - value) < distance for value, _ in values]


def mark_bold(cells: Sequence[ComparisonCell]) -> tuple[ComparisonCell, ...]:
    """Mark our bold numbers in each group. The paper's bold numbers are as printed."""
    marked = list(cells)
    for group in dict.fromkeys(cell.group for cell in cells if cell.group):
        indices = [index for index, cell in enumerate(cells) if cell.group == group]
        first = cells[indices[0]]
        values = [(cells[index].ours, cells[index].ranked) for index in indices]
        bold = near_best(values, first.higher_is_better, "MSE" in first.unit)
        for index, is_bold in zip(indices, bold, strict=True):
            marked[index] = replace(cells[index], ours_bold=is_bold)
    return tuple(marked)


def relative_link(run: Path | None, directory: Path) -> str:
    """Return the path of a run directory relative to `directory`, with slashes."""
    return "" if run is None else Path(os.path.relpath(run, directory)).as_posix()


def to_csv(tables: Sequence[ComparisonTable], directory: Path) -> str:
    """Write one line per cell. The heading of our numbers names the data if it is not the paper's."""
    pairs = [(table, cell) for table in tables for cell in table.cells]
    labels = [cell.label for _, cell in pairs if cell.ours is not None or cell.state]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_LEADING, "ours" + label_suffix(labels), *_TRAILING])
    for table, cell in pairs:
        writer.writerow(
            [
                table.title,
                cell.row,
                cell.column,
                cell.unit,
                cell.paper_text if cell.paper is None else _number(cell.paper),
                _number(cell.ours),
                cell.label or "as in the paper",
                _number(cell.difference),
                str(cell.paper_bold).lower(),
                str(cell.ours_bold).lower(),
                _number(cell.half_width),
                cell.state,
                cell.detail,
                relative_link(cell.run, directory),
            ]
        )
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def to_markdown(tables: Sequence[ComparisonTable], directory: Path) -> str:
    """Write the tables of the page as Markdown. Links are relative to `directory`."""
    parts = [_table(table, directory) for table in tables if table.on_page and table.cells]
    return "\n\n".join(parts) + "\n"


def _table(table: ComparisonTable, directory: Path) -> str:
    heading = [table.corner, *([""] if table.compare else []), *table.columns]
    lines = [f"### {table.title}", "", _row(heading), _row(["---"] * len(heading))]
    for row in table.rows:
        cells = table.row_cells(row)
        ours = [_linked(cell, directory) for cell in cells]
        if table.compare:
            paper = [_bold(cell.paper_shown, cell.paper_bold) if cell else "" for cell in cells]
            differences = [cell.difference_text if cell else "" for cell in cells]
            lines.append(_row([row, "paper", *paper]))
            lines.append(_row([row, "ours" + table.row_suffix(row), *ours]))
            if table.has_differences(row):
                lines.append(_row([row, "difference", *differences]))
        else:
            lines.append(_row([row + table.row_suffix(row), *ours]))
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold and text else text


def _linked(cell: ComparisonCell | None, directory: Path) -> str:
    if cell is None or not cell.ours_text:
        return ""
    text = _bold(cell.ours_text, cell.ours_bold)
    linked = f"[{text}]({relative_link(cell.run, directory)})" if cell.run else text
    return f"{linked} {cell.detail}".strip()
