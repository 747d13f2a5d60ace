"""From a metric to the colour of a cell: brighter is better, and all maps of a page share one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from plotly.colors import sample_colorscale, sequential, unlabel_rgb

PALETTE = sequential.Viridis  # even to the eye, and to colour-blind eyes
WIDE_SPAN = 10.0  # values that span more than this factor are coloured by their logarithm
EVEN = 0.179  # the luminance on which black and white contrast equally


class Scale(NamedTuple):
    """From a metric to a colour: 0 is the worst value of all maps, 1 the best."""

    worst: float
    best: float
    log: bool

    def place(self, value: float) -> float:
        worst, best, at = (math.log10(v) if self.log else v for v in (self.worst, self.best, value))
        return 1.0 if best == worst else (at - worst) / (best - worst)

    def colour(self, value: float) -> tuple[str, str]:
        """The cell's colour, and black or white for what is written on it."""
        return background(min(1.0, max(0.0, self.place(value))))

    @property
    def middle(self) -> float:
        return math.sqrt(self.worst * self.best) if self.log else (self.worst + self.best) / 2


def scale_of(values: Sequence[float], higher_is_better: bool) -> Scale:
    """One scale for all maps, so that colours can be compared between methods."""
    low, high = min(values), max(values)
    log = not higher_is_better and low > 0 and high > WIDE_SPAN * low
    return Scale(low, high, log) if higher_is_better else Scale(high, low, log)


def background(at: float) -> tuple[str, str]:
    """The palette's colour at 0 to 1 as hex, and the better of black and white upon it."""
    red, green, blue = (round(part) for part in unlabel_rgb(sample_colorscale(PALETTE, [at])[0]))
    return f"#{red:02x}{green:02x}{blue:02x}", "#000" if luminance(red, green, blue) > EVEN else "#fff"


def luminance(red: int, green: int, blue: int) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
