"""The chart of all trials of a sweep, sorted by their metric: how easy each method is to tune."""

from __future__ import annotations

from collections.abc import Sequence

from fedopt.analysis.ease_of_tuning import EaseOfTuning
from fedopt.analysis.heatmap import RateGrid
from fedopt.display.line_styles import assign_styles
from fedopt.formatting import is_fraction, metric_unit
from fedopt.reporting.charts import (
    Chart,
    ChartLine,
    HorizontalAxis,
    LegendEntry,
    VerticalAxis,
    six_digits,
    spans_orders,
)

SHARE = HorizontalAxis("Share of the trials (%)", "best ", " % of the trials")


def sorted_trials_chart(eases: Sequence[EaseOfTuning], grids: Sequence[RateGrid], metric: str) -> Chart:
    """Return a chart with a line per method: its best share of trials has at least this value."""
    unit = metric_unit(metric)
    styles = assign_styles([grid.trials[0].group.records[0].label for grid in grids])
    curves = [ease.sorted_curve() for ease in eases]
    lines = [
        ChartLine(
            entry,
            "",
            six_digits(100 * share for share, _ in curve),
            six_digits(value * unit.factor for _, value in curve),
        )
        for entry, curve in enumerate(curves)
    ]
    higher_is_better = all(grid.higher_is_better for grid in grids)
    title = f"Mean test {unit.name}" + (f" ({unit.suffix.strip()})" if unit.suffix else "")
    log = not higher_is_better and spans_orders(lines)
    return Chart(
        id="sorted-trials",
        title=f"Trials sorted by mean {unit.name}",
        note=f"Each point is a trial, the best on the left. {'Higher' if higher_is_better else 'Lower'} and "
        "longer is better: a line ends early if trials have no result.",
        x=SHARE,
        y=VerticalAxis(title, unit.digits, unit.suffix, log, fits_trials=is_fraction(metric)),
        legend=[LegendEntry(ease.method, style) for ease, style in zip(eases, styles, strict=True)],
        lines=lines,
        can_smooth=False,
        wide=True,
    )
