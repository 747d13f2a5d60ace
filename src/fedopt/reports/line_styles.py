"""Colour, dash and marker of each algorithm, the same in all figures.

Every colour has a contrast of at least 3:1 with the light and with the dark background of the pages. Dashes
and markers distinguish the lines without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SYMBOLS = {  # markers as SVG paths around the origin
    "circle": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "square": "M-3.3-3.3h6.6v6.6h-6.6z",
    "diamond": "M0-4.8L4.8 0L0 4.8L-4.8 0z",
    "triangle-up": "M0-4.6L4.4 3.2H-4.4z",
    "triangle-down": "M0 4.6L4.4-3.2H-4.4z",
    "plus": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "pentagon": "M0-4.5L4.3-1.4L2.6 3.6H-2.6L-4.3-1.4z",
    "cross": "M-4.3-2.1L-2.1-4.3L0-2.1L2.1-4.3L4.3-2.1L2.1 0L4.3 2.1L2.1 4.3L0 2.1L-2.1 4.3L-4.3 2.1L-2.1 0z",
    "hexagon": "M-4.2 0L-2.1-3.7H2.1L4.2 0L2.1 3.7H-2.1z",
    "bar": "M-4.5-1.5h9v3h-9z",
    "star": "M0-5L1.2-1.6H4.8L1.9 .6L3 4L0 1.9L-3 4L-1.9 .6L-4.8-1.6H-1.2z",
    "triangle-right": "M4.6 0L-3.2 4.4V-4.4z",
}


class LineStyle(NamedTuple):
    """Colour, dash and marker of a line. `dash` lists the lengths of lines and gaps; empty means solid."""

    colour: str
    dash: tuple[int, ...]
    symbol: str

    @property
    def svg(self) -> dict[str, str]:
        """Colour, `stroke-dasharray` and the path of the marker."""
        dash = " ".join(map(str, self.dash)) or "none"
        return {"colour": self.colour, "dash": dash, "marker": SYMBOLS[self.symbol]}


ALGORITHM_STYLES = {
    "fedadam": LineStyle("#2a7fc4", (), "circle"),
    "fedadagrad": LineStyle("#d55e00", (8, 3), "square"),
    "fedyogi": LineStyle("#00946b", (2, 3), "triangle-up"),
    "fedavgm": LineStyle("#b8578f", (11, 3, 2, 3), "diamond"),
    "fedavg": LineStyle("#9a7400", (5, 3), "triangle-down"),
    "scaffold": LineStyle("#8a63d2", (11, 3, 2, 3, 2, 3), "plus"),
    "fedprox": LineStyle("#1a7f9c", (14, 4), "pentagon"),
    "fedopt": LineStyle("#d64550", (5, 3, 2, 3), "cross"),
    "adaalter": LineStyle("#6f8f1d", (3, 2), "hexagon"),
    "lookahead": LineStyle("#7a7f87", (16, 3, 4, 3), "bar"),
    "centralized": LineStyle("#8c6d31", (2, 6), "star"),
}
_OTHER_STYLES = (LineStyle("#a0629f", (18, 4), "triangle-right"), *ALGORITHM_STYLES.values())


def assign_styles(algorithms: Sequence[str]) -> list[LineStyle]:
    """Return a style for each line, given the algorithm of each.

    The first line of a known algorithm has the style of the algorithm. Further lines of it and other
    algorithms take styles that no line has. When all are taken, styles repeat.
    """
    assigned: dict[int, LineStyle] = {}
    for index, name in enumerate(algorithms):
        if name in ALGORITHM_STYLES and name not in algorithms[:index]:
            assigned[index] = ALGORITHM_STYLES[name]
    free = [style for style in _OTHER_STYLES if style not in assigned.values()] or list(_OTHER_STYLES)
    rest = [index for index in range(len(algorithms)) if index not in assigned]
    assigned |= {index: free[position % len(free)] for position, index in enumerate(rest)}
    return [assigned[index] for index in range(len(algorithms))]
