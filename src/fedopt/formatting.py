"""Format numbers as text: metrics with their unit, settings, learning rates, durations and small tables.

Files contain raw values. All tables, pages and messages use these formats.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Unit", "count_noun", "format_duration", "metric_unit"]

ABSENT = "–"  # shown where there is no value
_LARGE = 1e9  # numbers from here on are written with an exponent
_PERCENT_METRICS = ("accuracy", "recall", "precision", "f1")


class Unit(NamedTuple):
    """How a metric is displayed: name, scale factor, decimal places and suffix."""

    name: str
    factor: float
    digits: int
    suffix: str

    def format(self, value: float, half_width: float | None = None) -> str:
        """Format a value, with the half-width of its confidence interval if given."""
        interval = "" if half_width is None else f" ± {self._number(half_width)}"
        return f"{self._number(value)}{interval}{self.suffix}"

    def _number(self, value: float) -> str:
        scaled = value * self.factor
        return f"{scaled:.3g}" if abs(scaled) >= _LARGE else f"{scaled:,.{self.digits}f}"

    def format_difference(self, value: float, half_width: float | None = None) -> str:
        """Format a difference of two values without its unit, with a minus sign if it is negative.

        >>> metric_unit("accuracy").format_difference(-0.0123, 0.004)
        '−1.2 ± 0.4'
        """
        text = self._replace(suffix="").format(value, half_width).replace("-", "−")
        return text.removeprefix("−") if not float(text.split()[0].strip("−").replace(",", "")) else text

    @property
    def difference_unit(self) -> str:
        """The unit of a difference: percentage points for percentages."""
        return " points" if self.suffix == " %" else self.suffix

    def format_rounded(self, value: float) -> str:
        """Format a value with three significant digits."""
        return f"{float(f'{value * self.factor:.3g}'):,.10g}{self.suffix}"


def shorten(text: str, length: int = 80) -> str:
    """Replace the middle of a long text by dots, for messages.

    >>> shorten("seed=123456789", 10)
    'seed...789'
    """
    if len(text) <= length:
        return text
    kept = length - 3
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"


def printable(text: str) -> str:
    r"""Replace control characters, which can change the display of a terminal, by their codes.

    >>> printable("\x1b[31mred\u202e")
    '\\x1b[31mred\\u202e'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def metric_unit(metric: str) -> Unit:
    """Return the unit in which a metric is displayed.

    Args:
        metric: the name of a metric, such as "recall_at_5".

    Returns:
        The unit. Its method `format` formats a value.

    Examples:
        >>> accuracy, mse = metric_unit("accuracy"), metric_unit("mse")
        >>> accuracy.format(0.7941), accuracy.format(0.5, 0.012), mse.format(0.01698)
        ('79.4 %', '50.0 ± 1.2 %', '16.98')
        >>> metric_unit("loss").format(2.3257e30)
        '2.33e+30'
    """
    name = re.sub(r"_at_(\d+)$", r"@\1", metric).replace("_", " ")
    if metric == "mse":
        return Unit("MSE × 1000", 1000.0, 2, "")
    if is_fraction(metric):
        return Unit(name, 100.0, 1, " %")
    return Unit(name, 1.0, 4, "")


def is_fraction(metric: str) -> bool:
    """Return whether a metric lies between 0 and 1 and is displayed in percent."""
    return any(word in metric for word in _PERCENT_METRICS)


def format_setting(value: object) -> str:
    """Format a configuration value: floats with four significant digits, booleans as in TOML.

    >>> format_setting(0.03162277660168379), format_setting(True), format_setting(1e-05), format_setting(1.0)
    ('0.03162', 'true', '1e-05', '1')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_exponent(rate: float) -> str:
    """Format the decimal logarithm of a learning rate.

    >>> format_exponent(0.1), format_exponent(10**-1.5), format_exponent(0.02), format_exponent(1.0)
    ('−1', '−1.5', '−1.7', '0')
    """
    return f"{round(math.log10(rate), 2) + 0.0:g}".replace("-", "−")


def column_formatter(values: Sequence[float | None]) -> Callable[[float], str]:
    """Return a formatter for a table column: the smallest value keeps three significant digits.

    >>> format_number = column_formatter([0.8123, 12.5])
    >>> format_number(0.8123), format_number(12.5)
    ('0.812', '12.500')
    """
    sizes = [abs(value) for value in values if value]
    digits = min(5, max(0, 2 - math.floor(math.log10(min(sizes))))) if sizes else 0
    return lambda value: f"{value:.3g}" if abs(value) >= _LARGE else f"{value:,.{digits}f}"


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    Args:
        count: the count.
        noun: the noun in the singular.

    Returns:
        The text.

    Examples:
        >>> count_noun(1, "client"), count_noun(1200, "example")
        ('1 client', '1,200 examples')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_count(count: int) -> str:
    """Format a count with two or three significant digits.

    >>> [format_count(count) for count in (850, 12_000, 1_206_590, 5_000_500, 11_200_000)]
    ['850', '12 K', '1.2 M', '5.0 M', '11 M']
    """
    for size, suffix in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.{1 if count < 10 * size else 0}f} {suffix}"
    return str(count)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DURATIONS = (
    (_MINUTE, 1, "s", 0),
    (_HOUR, _MINUTE, "min", 0),
    (_DAY, _HOUR, "h", 1),
    (365 * _DAY, _DAY, "days", 1),
)


def format_duration(seconds: float) -> str:
    """Format a duration in the largest suitable unit.

    Args:
        seconds: the duration.

    Returns:
        The text.

    Examples:
        >>> [format_duration(s) for s in (0, 42, 600, 7200, 400000, 4e7)]
        ['0 s', '42 s', '10 min', '2.0 h', '4.6 days', '1.3 years']
    """
    for limit, size, unit, digits in _DURATIONS:
        if seconds < limit:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds / (365 * _DAY):.1f} years"


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
