"""The data of the charts: lines with their bands, axes and formats. `templates/charts.js` draws them.

A configuration with several seeds is drawn as the mean at the rounds that all seeds have, with a band for
its 95 % confidence interval.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from fedopt.formatting import ABSENT, is_fraction, metric_unit
from fedopt.intervals import confidence_interval
from fedopt.reports.grids import EaseOfTuning, RateGrid
from fedopt.reports.line_styles import ALGORITHM_STYLES, LineStyle, assign_styles
from fedopt.reports.summary import Comparison, Summary, bytes_sent
from fedopt.runs.records import RunRecord

MAX_NAMED = 12  # configurations with a line of their own
MAX_TRIALS = 60  # thin lines behind them
SMOOTHED_SHARE = 12  # the moving average spans a twelfth of the longest run
MAX_WINDOW = 25  # rounds
WINDOWS = (5, 10, 25, 50, 100)  # points in the moving averages that the page offers
WIDE_SPAN = 100.0  # losses and errors that span a larger factor get a logarithmic axis
TRIAL_POINTS = 100  # maximum points of the thin line of a trial
TABLE_COLUMNS = 8  # rounds in the table of a page without JavaScript


class LineSelection(NamedTuple):
    """The configurations that the charts show."""

    named: list[Summary]  # with a line style and a legend entry
    trials: list[Summary]  # thin lines in the colour of their algorithm
    omitted: int
    styles: dict[int, LineStyle]  # of the named lines, by the position of the configuration

    def style(self, summary: Summary) -> LineStyle | None:
        """Return the style of a configuration, None if it has no named line."""
        return self.styles.get(summary.position)

    def trial_colour(self, summary: Summary) -> str:
        """Return the colour of a thin line: that of its algorithm, or "" for an unknown algorithm."""
        label = summary.record.label
        same = (self.style(named) for named in self.named if named.record.label == label)
        style = next(same, None) or ALGORITHM_STYLES.get(label)
        return style.colour if style else ""


def select_lines(comparison: Comparison, selected: Collection[Path] = ()) -> LineSelection:
    """Select all configurations; of more than twelve, one of each algorithm and others as thin lines.

    The one is the best, or the one whose runs a sweep has selected.
    """
    named = summaries = comparison.summaries
    if len(summaries) > MAX_NAMED:
        best: dict[str, Summary] = {}
        for summary in sorted(summaries, key=lambda summary: summary.record.path not in selected):
            best.setdefault(summary.record.label, summary)
        named = sorted(best.values(), key=summaries.index)[:MAX_NAMED]
    ordered = sorted(named, key=lambda summary: summary.position)
    assigned = assign_styles([summary.record.label for summary in ordered])
    styles = {summary.position: style for summary, style in zip(ordered, assigned, strict=True)}
    others = [summary for summary in summaries if summary.position not in styles]
    done = [summary for summary in others if not summary.failed]
    count = min(MAX_TRIALS, len(done))
    trials = [done[at * len(done) // count] for at in range(count)]  # from good to bad
    return LineSelection(named, trials, len(others) - len(trials), styles)


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

    def format(self, value: float) -> str:
        return (f"{value:.4g}" if self.digits is None else f"{value:,.{self.digits}f}") + self.suffix


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

    def table(self) -> tuple[list[str], list[list[str]]] | None:
        """Return heads and rows with some rounds of each named line, for a page without JavaScript."""
        named = [line for line in self.lines if line.entry is not None]
        places = sorted({x for line in named for x in line.x})
        if not places or not self.x.whole:
            return None
        step = -(-len(places) // TABLE_COLUMNS)
        shown = places[::-step][::-1]  # with the last round
        rows = []
        for line in named:
            values = dict(zip(line.x, map(self.y.format, line.y), strict=True))
            rows.append([self.legend[line.entry or 0].name, *(values.get(x, ABSENT) for x in shown)])
        return [self.x.title.lower(), *(f"{x:,.0f}" for x in shown)], rows

    def document(self) -> dict[str, Any]:
        """Return the chart for the script of the page."""
        legend = [{"name": entry.name, **entry.style.svg} for entry in self.legend]
        axes = {"x": self.x._asdict(), "y": self.y._asdict()}
        return self._asdict() | axes | {"legend": legend, "lines": [line._asdict() for line in self.lines]}


SHARE = HorizontalAxis("Share of the trials (%)", "best ", " % of the trials")
ROUNDS = HorizontalAxis("Round", "round ", "", whole=True)
MEGABYTES = HorizontalAxis("Communication (MB)", "", " MB")


class MeanCurve(NamedTuple):
    rounds: list[int]
    means: list[float]
    half_widths: list[float] | None  # None for one seed


def run_charts(comparison: Comparison, selection: LineSelection, window: int) -> list[Chart]:
    """Return the charts of the runs: metric and train loss by round, and metric by communication."""
    metric, higher, unit = comparison.metric, comparison.higher_is_better, metric_unit(comparison.metric)
    target = None if comparison.target is None else comparison.target * unit.factor
    named = [(summary, selection.style(summary)) for summary in selection.named]
    legend = [LegendEntry(summary.label, style, summary.state) for summary, style in named if style]
    losses = _lines(selection, "train", "loss", ROUNDS)

    def metric_chart(id: str, by: str, note: str, x: HorizontalAxis) -> Chart:
        ceiling = unit.factor if is_fraction(metric) else inf
        lines = _lines(selection, "test", metric, x, unit.factor, ceiling)
        y = _metric_axis(f"Test {unit.name}", metric, not higher and spans_orders(lines))
        title = f"Test {unit.name} by {by}"
        return Chart(id, title, note, x, y, legend, lines, target=target, wide=x is ROUNDS)

    loss = VerticalAxis("Train loss", None, "", log=spans_orders(losses), fits_trials=False)
    better, title = f"{'Higher' if higher else 'Lower'} is better.", "Train loss by round"
    sent = "MB sent in both directions, all clients."
    return [
        metric_chart("metric-by-round", "round", better, ROUNDS),
        Chart("loss-by-round", title, "Lower is better.", ROUNDS, loss, legend, losses, window),
        metric_chart("metric-by-megabytes", "communication", sent, MEGABYTES),
    ]


def smoothing_window(records: Sequence[RunRecord]) -> int:
    """Return the rounds in the moving average of the train loss, the same for all runs."""
    return max(1, min(MAX_WINDOW, max(record.rounds for record in records) // SMOOTHED_SHARE))


def mean_curve(curves: Sequence[tuple[list[int], list[float]]]) -> MeanCurve:
    """Return the mean of several curves, with confidence intervals, at the rounds that all of them have.

    Args:
        curves: rounds and values of each seed, as `RunRecord.curve` returns them.

    Returns:
        The common rounds, the means and the half-widths of their 95 % intervals, which are None for one seed.

    Examples:
        >>> mean_curve([([0, 2, 4], [1.0, 2.0, 3.0]), ([0, 2], [1.0, 4.0])]).means
        [1.0, 3.0]
    """
    tables = [dict(zip(*curve, strict=True)) for curve in curves]
    rounds = [round for round in curves[0][0] if all(round in table for table in tables)]
    points = [confidence_interval([table[round] for table in tables]) for round in rounds]
    half_widths = None if len(curves) == 1 else [point.half_width or 0.0 for point in points]
    return MeanCurve(rounds, [point.mean for point in points], half_widths)


def sorted_trials_chart(eases: Sequence[EaseOfTuning], grids: Sequence[RateGrid], metric: str) -> Chart:
    """Return a chart with a line per method: its best share of trials has at least this value."""
    unit, higher = metric_unit(metric), all(grid.higher_is_better for grid in grids)
    styles = assign_styles([grid.trials[0].group.records[0].label for grid in grids])
    lines = []
    for entry, ease in enumerate(eases):
        shares, values = zip(*ease.sorted_curve(), strict=True) if ease.sorted_values else ((), ())
        x, y = ([100 * share for share in shares], [value * unit.factor for value in values])
        lines.append(ChartLine(entry, "", six_digits(x), six_digits(y)))
    return Chart(
        id="sorted-trials",
        title=f"Trials sorted by mean {unit.name}",
        note=f"Each point is a trial, the best on the left. {'Higher' if higher else 'Lower'} and longer is "
        "better: a line ends early if trials have no result.",
        x=SHARE,
        y=_metric_axis(f"Mean test {unit.name}", metric, not higher and spans_orders(lines)),
        legend=[LegendEntry(ease.method, style) for ease, style in zip(eases, styles, strict=True)],
        lines=lines,
        can_smooth=False,
        wide=True,
    )


def _metric_axis(title: str, metric: str, log: bool) -> VerticalAxis:
    """Return the axis of a metric. That of fractions covers the trials too."""
    unit = metric_unit(metric)
    title += f" ({unit.suffix.strip()})" if unit.suffix else ""
    return VerticalAxis(title, unit.digits, unit.suffix, log, fits_trials=is_fraction(metric))


def _lines(
    selection: LineSelection,
    split: Literal["train", "test"],
    key: str,
    axis: HorizontalAxis,
    factor: float = 1.0,
    ceiling: float = inf,
) -> list[ChartLine]:
    """Return the trials, with fewer points and no bands, and then the named lines, which are drawn above."""
    lines = []
    for entry, summary in [*((None, trial) for trial in selection.trials), *enumerate(selection.named)]:
        counted = summary.group.counted
        rounds, means, half_widths = mean_curve([record.curve(split, key) for record in counted])
        x: Sequence[float] = rounds
        if axis is MEGABYTES:
            sent = [bytes_sent(record, rounds) for record in counted]
            x = [fmean(totals) / 1e6 for totals in zip(*sent, strict=True)] if all(sent) else []
        y = [mean * factor for mean in means[: len(x)]]  # no points if the bytes were not recorded
        if entry is None:
            step = max(1, len(y) // TRIAL_POINTS)
            x, y = x[::step], y[::step]
        colour = selection.trial_colour(summary) if entry is None else ""
        line = ChartLine(entry, colour, six_digits(x), six_digits(y))
        if entry is not None and half_widths is not None:
            floor = 0.0 if min(y, default=0.0) >= 0 else -inf  # losses and metrics are not negative
            pairs = [(value, half * factor) for value, half in zip(y, half_widths, strict=False)]
            low = six_digits(max(floor, value - half) for value, half in pairs)
            line = line._replace(
                low=low, high=six_digits(min(ceiling, value + half) for value, half in pairs)
            )
        lines.append(line)
    return lines


def spans_orders(lines: Sequence[ChartLine]) -> bool:
    """Whether the values of the named lines are positive and span orders of magnitude."""
    values = [value for line in lines if line.entry is not None for value in line.y]
    return bool(values) and min(values) > 0 and max(values) > WIDE_SPAN * min(values)


def six_digits(values: Iterable[float]) -> list[float]:
    """Round to six digits. More are not visible in a chart and would double the size of the page."""
    return [float(f"{value:.6g}") for value in values]
