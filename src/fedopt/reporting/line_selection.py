"""Select the configurations that the charts show, and their styles."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from fedopt.analysis.summary import Comparison, Summary
from fedopt.display.line_styles import ALGORITHM_STYLES, LineStyle, assign_styles

MAX_NAMED = 12  # configurations with a line of their own
MAX_TRIALS = 60  # thin lines behind them


class LineSelection(NamedTuple):
    """The configurations that the charts show."""

    named: list[Summary]  # with a line style and a legend entry
    trials: list[Summary]  # thin lines in the colour of their algorithm
    omitted: int

    def style(self, summary: Summary) -> LineStyle | None:
        """Return the style of a configuration, None if it has no named line."""
        ordered = sorted(self.named, key=lambda named: named.position)
        styles = assign_styles([named.record.label for named in ordered])
        positions = [named.position for named in ordered]
        return styles[positions.index(summary.position)] if summary.position in positions else None

    def trial_colour(self, summary: Summary) -> str:
        """Return the colour of a thin line: that of its algorithm, or "" for an unknown algorithm."""
        for named in self.named:
            style = self.style(named)
            if named.record.label == summary.record.label and style is not None:
                return style.colour
        style = ALGORITHM_STYLES.get(summary.record.label)
        return style.colour if style else ""


def select_lines(comparison: Comparison, selected: Collection[Path] = ()) -> LineSelection:
    """Select all configurations; of more than twelve, one of each algorithm and others as thin lines.

    The one is the best, or the one whose runs a sweep has selected.
    """
    summaries = comparison.summaries
    if len(summaries) <= MAX_NAMED:
        return LineSelection(summaries, [], 0)
    best: dict[str, Summary] = {}
    for summary in sorted(summaries, key=lambda summary: summary.record.path not in selected):
        best.setdefault(summary.record.label, summary)
    named = sorted(best.values(), key=summaries.index)[:MAX_NAMED]
    positions = {summary.position for summary in named}
    others = [summary for summary in summaries if summary.position not in positions]
    done = [summary for summary in others if not summary.failed]
    count = min(MAX_TRIALS, len(done))
    trials = [done[at * len(done) // count] for at in range(count)]  # from good to bad
    return LineSelection(named, trials, len(others) - len(trials))
