"""The data of the charts: lines with their bands, axes and formats.

A configuration with several seeds is drawn as the mean at the rounds that all seeds have, with a band for
its 95 % confidence interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fedopt.analysis.run_numbers import bytes_sent
from fedopt.analysis.seeds import confidence_interval
from fedopt.analysis.summary import Comparison, Summary
from fedopt.display.line_styles import LineStyle
from fedopt.formatting import is_fraction, metric_unit
from fedopt.reporting.line_selection import LineSelection
from fedopt.runs.records import RunRecord

SMOOTHED_SHARE = 12  # the moving average spans a twelfth of the longest run
MAX_WINDOW = 25  # rounds
WINDOWS = (5, 10, 25, 50, 100)  # points in the moving averages that the page offers
WIDE_SPAN = 100.0  # losses and errors that span a larger factor get a logarithmic axis
TRIAL_POINTS = 100  # maximum points of the thin line of a trial


class LegendEntry(NamedTuple):
    """A named line. Charts with the same name hide and show it together."""

    name: str
    style: LineStyle
    state: str = ""  # of an incomplete configuration, such as "diverged"


class ChartLine(NamedTuple):
    """A line of a chart. Thin lines of trials have no legend entry."""

    entry: int | None  # index in the legend
    colour: str  # of the line of a trial; "" for grey
    x: list[float]
    y: list[float]
    low: list[float] | None = None  # ends of the confidence interval; None for one seed
    high: list[float] | None = None


class HorizontalAxis(NamedTuple):
    title: str
    prefix: str  # before and after a value in the text under the pointer
    suffix: str
    whole: bool = False  # whether all values are whole numbers


class VerticalAxis(NamedTuple):
    title: str
    digits: int | None  # decimal places; None: four significant digits
    suffix: str
    log: bool  # when the page opens
    fits_trials: bool  # whether the axis covers the lines of trials, or only the named lines


class Chart(NamedTuple):
    id: str
    title: str
    note: str
    x: HorizontalAxis
    y: VerticalAxis
    legend: list[LegendEntry]
    lines: list[ChartLine]
    window: int = 1  # points in the moving average when the page opens
    can_smooth: bool = True  # false if the order of the points has no meaning in time
    target: float | None = None
    wide: bool = False

    @property
    def has_bands(self) -> bool:
        return any(line.low is not None for line in self.lines)

    @property
    def windows(self) -> list[int]:
        """The windows that the reader can choose: shorter than the longest line."""
        longest = max((len(line.y) for line in self.lines if line.entry is not None), default=0)
        return sorted({1, self.window, *(window for window in WINDOWS if window < longest)})

    def document(self) -> dict[str, Any]:
        """Return the chart for the script of the page."""
        legend = [
            {
                "name": e.name,
                "colour": e.style.colour,
                "dash": e.style.dash_array,
                "marker": e.style.symbol_path,
            }
            for e in self.legend
        ]
        lines = [line._asdict() for line in self.lines]
        return {
            **self._asdict(),
            "x": self.x._asdict(),
            "y": self.y._asdict(),
            "legend": legend,
            "lines": lines,
        }


ROUNDS = HorizontalAxis("Round", "round ", "", whole=True)
MEGABYTES = HorizontalAxis("Communication (MB)", "", " MB")


class MeanCurve(NamedTuple):
    rounds: list[int]
    means: list[float]
    half_widths: list[float] | None  # None for one seed


def run_charts(comparison: Comparison, selection: LineSelection, window: int) -> list[Chart]:
    """Return the charts of the runs: metric and train loss by round, and metric by communication."""
    return [
        _metric_chart("metric-by-round", comparison, selection, ROUNDS),
        _loss_chart(selection, window),
        _metric_chart("metric-by-megabytes", comparison, selection, MEGABYTES),
    ]


def legend_entries(selection: LineSelection) -> list[LegendEntry]:
    """Return the named lines."""
    return [
        LegendEntry(s.label, style, s.state)
        for s in selection.named
        if (style := selection.style(s)) is not None
    ]


def smoothing_window(records: Sequence[RunRecord]) -> int:
    """Return the rounds in the moving average of the train loss, the same for all runs."""
    return max(1, min(MAX_WINDOW, max(record.rounds for record in records) // SMOOTHED_SHARE))


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and up to `window - 1` values before it.

    >>> moving_average([1.0, 3.0, 5.0], 2)
    [1.0, 2.0, 4.0]
    """
    return [fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]


def mean_curve(curves: Sequence[tuple[list[int], list[float]]]) -> MeanCurve:
    """Return the mean of several curves, with confidence intervals, at the rounds that all of them have.

    >>> mean_curve([([0, 2, 4], [1.0, 2.0, 3.0]), ([0, 2], [1.0, 4.0])]).means
    [1.0, 3.0]
    """
    tables = [dict(zip(*curve, strict=True)) for curve in curves]
    rounds = [round for round in curves[0][0] if all(round in table for table in tables)]
    points = [confidence_interval([table[round] for table in tables]) for round in rounds]
    half_widths = None if len(curves) == 1 else [point.half_width or 0.0 for point in points]
    return MeanCurve(rounds, [point.mean for point in points], half_widths)


def _metric_chart(name: str, comparison: Comparison, selection: LineSelection, x: HorizontalAxis) -> Chart:
    unit, metric = metric_unit(comparison.metric), comparison.metric
    ceiling = unit.factor if is_fraction(metric) else None
    lines: list[ChartLine] = []
    for entry, summary in _drawing_order(selection):
        counted = summary.group.counted
        curve = mean_curve([record.curve("test", metric) for record in counted])
        x_values: Sequence[float] = curve.rounds
        if x is MEGABYTES:
            x_values = [total / 1e6 for total in _mean_bytes(counted, curve.rounds)]
            if not x_values:  # the bytes were not recorded
                curve = MeanCurve([], [], None)
        lines.append(_line(selection, entry, summary, x_values, curve, unit.factor, ceiling))
    title = f"Test {unit.name}" + (f" ({unit.suffix.strip()})" if unit.suffix else "")
    if x is MEGABYTES:
        heading, note = f"Test {unit.name} by communication", "MB sent in both directions, all clients."
    else:
        heading = f"Test {unit.name} by round"
        note = f"{'Higher' if comparison.higher_is_better else 'Lower'} is better."
    return Chart(
        id=name,
        title=heading,
        note=note,
        x=x,
        y=VerticalAxis(
            title,
            unit.digits,
            unit.suffix,
            log=not comparison.higher_is_better and spans_orders(lines),
            fits_trials=ceiling is not None,
        ),
        legend=legend_entries(selection),
        lines=lines,
        target=None if comparison.target is None else comparison.target * unit.factor,
        wide=x is ROUNDS,
    )


def _loss_chart(selection: LineSelection, window: int) -> Chart:
    lines = []
    for entry, summary in _drawing_order(selection):
        curve = mean_curve([record.curve("train", "loss") for record in summary.group.counted])
        lines.append(_line(selection, entry, summary, curve.rounds, curve, 1.0, None))
    return Chart(
        id="loss-by-round",
        title="Train loss by round",
        note="Lower is better.",
        x=ROUNDS,
        y=VerticalAxis("Train loss", None, "", log=spans_orders(lines), fits_trials=False),
        legend=legend_entries(selection),
        lines=lines,
        window=window,
    )


def _line(
    selection: LineSelection,
    entry: int | None,
    summary: Summary,
    x: Sequence[float],
    curve: MeanCurve,
    factor: float,
    ceiling: float | None,
) -> ChartLine:
    """Return the line of a configuration. A trial has fewer points and no band."""
    y = [value * factor for value in curve.means]
    if entry is None:
        step = max(1, len(y) // TRIAL_POINTS)
        return ChartLine(None, selection.trial_colour(summary), six_digits(x[::step]), six_digits(y[::step]))
    if curve.half_widths is None:
        return ChartLine(entry, "", six_digits(x), six_digits(y))
    floor = 0.0 if min(y, default=0.0) >= 0 else float("-inf")  # losses and metrics are not negative
    top = float("inf") if ceiling is None else ceiling
    bounds = [(value, half_width * factor) for value, half_width in zip(y, curve.half_widths, strict=True)]
    low = [max(floor, value - half_width) for value, half_width in bounds]
    high = [min(top, value + half_width) for value, half_width in bounds]
    return ChartLine(entry, "", six_digits(x), six_digits(y), six_digits(low), six_digits(high))


def _mean_bytes(records: Sequence[RunRecord], rounds: Sequence[int]) -> list[float]:
    sent = [bytes_sent(record, rounds) for record in records]
    return [fmean(column) for column in zip(*sent, strict=True)] if all(sent) else []


def _drawing_order(selection: LineSelection) -> list[tuple[int | None, Summary]]:
    """Return trials before named lines, which are drawn above them."""
    return [*((None, summary) for summary in selection.trials), *enumerate(selection.named)]


def spans_orders(lines: Sequence[ChartLine]) -> bool:
    """Whether the values of the named lines are positive and span orders of magnitude."""
    values = [value for line in lines if line.entry is not None for value in line.y]
    return bool(values) and min(values) > 0 and max(values) > WIDE_SPAN * min(values)


def six_digits(values: Iterable[float]) -> list[float]:
    """Round to six digits. More are not visible in a chart and would double the size of the page."""
    return [float(f"{value:.6g}") for value in values]
