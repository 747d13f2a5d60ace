"""How lines are drawn: which configurations get one of their own, and its colour, dash and marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedopt.analysis.summary import Summary

# Okabe and Ito's colours, which colour-blind readers can tell apart. Their yellow is left out, because it
# vanishes on white; their black is the page's ink, so that it is light on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "ink")
DASHES = ("solid", "7px,3px", "2px,3px", "11px,3px,2px,3px", "14px,4px", "5px,3px,2px,3px,2px,3px")
SYMBOLS = {  # plotly's name: the same shape for the legend
    "circle": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "square": "M-3.3-3.3h6.6v6.6h-6.6z",
    "diamond": "M0-4.8L4.8 0L0 4.8L-4.8 0z",
    "triangle-up": "M0-4.6L4.4 3.2H-4.4z",
    "cross": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "triangle-down": "M0 4.6L4.4-3.2H-4.4z",
    "pentagon": "M0-4.5L4.3-1.4L2.6 3.6H-2.6L-4.3-1.4z",
    "x": "M-4.3-2.1L-2.1-4.3L0-2.1L2.1-4.3L4.3-2.1L2.1 0L4.3 2.1L2.1 4.3L0 2.1L-2.1 4.3L-4.3 2.1L-2.1 0z",
}
MANY = 12  # more configurations than this are not drawn alike
MOST_GREY = 60  # of the others, this many are drawn, thin and grey


class LineStyle(NamedTuple):
    """How a line is drawn: colour, dash and marker, any two of which would do."""

    colour: str
    dash: str
    symbol: str


class Drawn(NamedTuple):
    """What the charts show of many configurations."""

    named: list[Summary]  # with a colour and a legend entry
    grey: list[Summary]  # thin, without one
    left_out: int

    def place(self, summary: Summary) -> int | None:
        """Which style a configuration has; None if it is not named in the charts."""
        order = sorted(self.named, key=lambda s: s.position)
        return next((at for at, other in enumerate(order) if other.position == summary.position), None)


def drawn(summaries: Sequence[Summary]) -> Drawn:
    """All configurations, or of many the best of each algorithm, with some others in grey behind them."""
    if len(summaries) <= MANY:
        return Drawn(list(summaries), [], 0)
    best: dict[str, Summary] = {}
    for summary in summaries:
        best.setdefault(summary.record.label, summary)
    named = list(best.values())[:MANY]
    places = {summary.position for summary in named}
    others = [summary for summary in summaries if summary.position not in places]
    grey = [summary for summary in others if not summary.failed][:MOST_GREY]
    return Drawn(named, grey, len(others) - len(grey))


def line_style(position: int) -> LineStyle:
    """The style at `position`; the three cycles meet again only after 168 lines."""
    symbols = tuple(SYMBOLS)
    return LineStyle(
        COLOURS[position % len(COLOURS)],
        DASHES[position % len(DASHES)],
        symbols[position % len(symbols)],
    )


def swatch(position: int | None) -> str:
    """A short piece of a line, for legends and tables; an empty place for what is not named in the charts."""
    if position is None:
        return '<svg class="swatch" viewBox="-18 -7 36 14" aria-hidden="true"></svg>'
    style = line_style(position)
    colour = "currentColor" if style.colour == "ink" else style.colour
    dashes = "" if style.dash == "solid" else f' stroke-dasharray="{style.dash.replace("px", "")}"'
    return (
        '<svg class="swatch" viewBox="-18 -7 36 14" aria-hidden="true">'
        f'<path d="M-18 0H18" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        f'<path d="{SYMBOLS[style.symbol]}" fill="{colour}"/></svg>'
    )
