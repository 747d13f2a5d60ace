"""Select the lines of the charts and their colour, dash and marker."""

from __future__ import annotations

from typing import NamedTuple

from fedopt.analysis.summary import Comparison, Summary

# The colour-blind safe palette of Okabe and Ito, without yellow, which is invisible on white. Their black is
# the text colour of the page, so that it is light on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "ink")
DASHES = ("solid", "7px,3px", "2px,3px", "11px,3px,2px,3px", "14px,4px", "5px,3px,2px,3px,2px,3px")
SYMBOLS = {  # plotly's name: the same shape as an SVG path for the legend
    "circle": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "square": "M-3.3-3.3h6.6v6.6h-6.6z",
    "diamond": "M0-4.8L4.8 0L0 4.8L-4.8 0z",
    "triangle-up": "M0-4.6L4.4 3.2H-4.4z",
    "cross": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "triangle-down": "M0 4.6L4.4-3.2H-4.4z",
    "pentagon": "M0-4.5L4.3-1.4L2.6 3.6H-2.6L-4.3-1.4z",
    "x": "M-4.3-2.1L-2.1-4.3L0-2.1L2.1-4.3L4.3-2.1L2.1 0L4.3 2.1L2.1 4.3L0 2.1L-2.1 4.3L-4.3 2.1L-2.1 0z",
}
MAX_NAMED = 12  # configurations with a line of their own
MAX_GREY = 60  # thin grey lines behind them


class LineStyle(NamedTuple):
    """Colour, dash and marker of a line. The combination repeats after 168 lines."""

    colour: str
    dash: str
    symbol: str

    @property
    def stroke(self) -> str:
        return "currentColor" if self.colour == "ink" else self.colour

    @property
    def symbol_path(self) -> str:
        return SYMBOLS[self.symbol]


class LineSelection(NamedTuple):
    """The configurations that the charts show."""

    named: list[Summary]  # with a colour and a legend entry
    grey: list[Summary]
    omitted: int

    def style(self, summary: Summary) -> LineStyle | None:
        """Return the style of a configuration, None if it has no named line."""
        positions = sorted(named.position for named in self.named)
        if summary.position not in positions:
            return None
        index = positions.index(summary.position)
        symbols = tuple(SYMBOLS)
        return LineStyle(
            COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], symbols[index % len(symbols)]
        )


def select_lines(comparison: Comparison) -> LineSelection:
    """Select all configurations, or the best of each algorithm with others in grey if there are many."""
    summaries = comparison.summaries
    if len(summaries) <= MAX_NAMED:
        return LineSelection(summaries, [], 0)
    best: dict[str, Summary] = {}
    for summary in summaries:
        best.setdefault(summary.record.label, summary)
    named = list(best.values())[:MAX_NAMED]
    positions = {summary.position for summary in named}
    others = [summary for summary in summaries if summary.position not in positions]
    grey = [summary for summary in others if not summary.failed][:MAX_GREY]
    return LineSelection(named, grey, len(others) - len(grey))
