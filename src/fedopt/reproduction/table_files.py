"""Comparison tables as CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from fedopt.reproduction.comparison import ComparisonCell, ComparisonTable, relative_link
from fedopt.reproduction.data_sources import label_suffix

_LEADING = ("table", "row", "column", "unit", "paper")
_TRAILING = ("data", "difference", "paper_bold", "ours_bold", "half_95", "state", "detail", "run")


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
