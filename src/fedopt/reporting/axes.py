"""Axes of the charts: linear and logarithmic scales and their ticks.

`templates/charts.js` has the same functions. A browser test compares the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

ROUNDING = 1e-9  # relative tolerance for a tick at the end of the axis


class Scale(NamedTuple):
    """Map values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def position(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, spacing: float) -> list[float]:
        """Return tick values that are at least about `spacing` pixels apart."""
        count = max(2.0, abs(self.end - self.start) / spacing)
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high, count)


def linear_ticks(low: float, high: float, count: float) -> list[float]:
    """Return at most about `count` multiples of 1, 2 or 5 times a power of ten.

    >>> linear_ticks(0, 21, 5), linear_ticks(0.9, 3.4, 4)
    ([0.0, 5.0, 10.0, 15.0, 20.0], [1.0, 2.0, 3.0])
    """
    step = _tick_step(low, high, count)
    slack = ROUNDING * (high - low)
    first, last = math.ceil((low - slack) / step), math.floor((high + slack) / step)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten in a range, also 2 and 5 times them if the range is short.

    >>> log_ticks(0.5, 2000), log_ticks(1.5, 30)
    ([1.0, 10.0, 100.0, 1000.0], [2.0, 5.0, 10.0, 20.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if math.log10(high / low) < 2 else (1,)
    step = max(1, (last - first) // 6)
    values = [float(f"{factor}e{power}") for power in range(first, last + 1, step) for factor in factors]
    return [value for value in values if low <= value <= high]


def format_ticks(values: list[float], log: bool) -> list[str]:
    """Format tick values with the digits that their distance needs.

    >>> format_ticks([0.0, 0.5, 1.0], False), format_ticks([0.0, 2500.0], False)
    (['0.0', '0.5', '1.0'], ['0', '2,500'])
    >>> format_ticks([1e-05, 0.01, 100.0], True)
    ['1e-5', '0.01', '100']
    """
    if log:
        return [_log_label(value) for value in values]
    step = values[1] - values[0] if len(values) > 1 else values[0] if values else 1.0
    digits = max(0, -math.floor(math.log10(abs(step)) + ROUNDING)) if step else 0
    return [f"{value:,.{digits}f}".replace("-", "−") for value in values]


def _log_label(value: float) -> str:
    if not 1e-4 <= value < 1e7:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.{max(0, -math.floor(math.log10(value) + ROUNDING))}f}"


def value_range(values: Iterable[float], log: bool) -> tuple[float, float]:
    """Return the range of an axis: all values with a margin of 4 %. Logarithmic axes ignore values <= 0."""
    known = [value for value in values if value > 0] if log else list(values)
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        margin = (high / low) ** 0.04 if high > low else 2.0
        return low / margin, high * margin
    margin = 0.04 * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin


def _tick_step(low: float, high: float, count: float) -> float:
    raw = (high - low) / count
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - ROUNDING))
