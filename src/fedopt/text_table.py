"""A small table of text, for the terminal and for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class TextTable(NamedTuple):
    """A table. The first column is aligned to the left and the others to the right.

    >>> print(TextTable("two runs", ["algorithm", "accuracy"], [["fedavg", "50.0 %"], ["fedyogi", "61.2 %"]]))
    two runs
    algorithm  accuracy
    fedavg       50.0 %
    fedyogi      61.2 %
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __str__(self) -> str:
        lines = [[_one_line(cell) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self.title] if self.title else []
        for first, *others in lines:
            cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
            text.append("  ".join(cells).rstrip())
        return "\n".join([*text, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_one_line(cell))}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    def _repr_markdown_(self) -> str:
        rows = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        lines = [
            "| " + " | ".join(_one_line(cell).replace("|", r"\|") for cell in row) + " |" for row in rows
        ]
        return "\n\n".join(part for part in (self.title, "\n".join(lines), self.note) if part)


class NotebookDisplay(ABC):
    """Base class of results that `print` and a notebook show as their table."""

    @abstractmethod
    def table(self) -> TextTable:
        """The result as a table."""

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def _repr_markdown_(self) -> str:
        return self.table()._repr_markdown_()


def _one_line(cell: str) -> str:
    return " ".join(cell.split("\n"))
