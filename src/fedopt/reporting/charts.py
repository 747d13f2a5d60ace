"""The three charts of the report: lines, bands, axes and notes. The page's script only draws them.

A configuration with several seeds is drawn as the mean at the rounds that all seeds have, with a band for
its 95 % confidence interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import Any, NamedTuple

from fedopt.analysis.run_numbers import bytes_sent
from fedopt.analysis.seeds import confidence_interval
from fedopt.analysis.summary import Comparison, Summary
from fedopt.formatting import is_fraction, metric_unit
from fedopt.reporting.line_styles import LineSelection, LineStyle
from fedopt.runs.records import RunRecord

SMOOTHED_SHARE = 12  # the moving average spans a twelfth of the longest run
MAX_WINDOW = 25  # rounds
WIDE_SPAN = 100.0  # values that span a larger factor get a logarithmic axis
GREY_POINTS = 100  # maximum points of a grey line
HEADROOM = 0.05  # of the axis, above and below the lines

Line = dict[str, Any]
Chart = dict[str, Any]
Axis = dict[str, Any]

FROM_ZERO: Axis = {"rangemode": "tozero", "tickformat": ",~r"}
ROUNDS: Axis = FROM_ZERO | {"title": "Round", "unifiedhovertitle": {"text": "round %{x}"}}
MEGABYTES: Axis = FROM_ZERO | {"title": "Communication (MB)"}


class MeanCurve(NamedTuple):
    rounds: list[int]
    means: list[float]
    half_widths: list[float] | None  # None for one seed


class LegendEntry(NamedTuple):
    name: str
    style: LineStyle


def legend_entries(selection: LineSelection) -> list[LegendEntry]:
    """Return the named lines. The name of an incomplete configuration includes its state."""
    return [
        LegendEntry(f"{s.label} ({s.state})" if s.state else s.label, style)
        for s in selection.named
        if (style := selection.style(s)) is not None
    ]


def chart_data(comparison: Comparison, selection: LineSelection, window: int) -> dict[str, Any]:
    """Return the data of the page's script: the styles of the named lines, and three charts."""
    return {
        "runs": [
            {"name": _plotly_text(entry.name), **entry.style._asdict()} for entry in legend_entries(selection)
        ],
        "charts": [
            _metric_chart("metric-by-round", comparison, selection, ROUNDS),
            _loss_chart(selection, window),
            _metric_chart("metric-by-megabytes", comparison, selection, MEGABYTES),
        ],
    }


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


def _line(
    run: int | None, x: Sequence[float], curve: MeanCurve, factor: float, ceiling: float | None
) -> Line:
    """Return a line of the page. A grey line has no `run`, fewer points and no band."""
    y = [value * factor for value in curve.means]
    if run is None:
        step = max(1, len(y) // GREY_POINTS)
        return {"run": None, "x": _six_digits(x[::step]), "y": _six_digits(y[::step])}
    line: Line = {"run": run, "x": _six_digits(x), "y": _six_digits(y)}
    if curve.half_widths is not None:
        half_widths = [half_width * factor for half_width in curve.half_widths]
        floor = 0.0 if min(y, default=0.0) >= 0 else float("-inf")  # losses and metrics are not negative
        ceiling = float("inf") if ceiling is None else ceiling
        bounds = list(zip(y, half_widths, strict=True))
        line["half"] = _six_digits(half_widths)
        line["low"] = _six_digits([max(floor, value - half_width) for value, half_width in bounds])
        line["high"] = _six_digits([min(ceiling, value + half_width) for value, half_width in bounds])
    return line


def _metric_chart(name: str, comparison: Comparison, selection: LineSelection, x: Axis) -> Chart:
    unit, metric = metric_unit(comparison.metric), comparison.metric
    ceiling = unit.factor if is_fraction(metric) else None
    lines: list[Line] = []
    for run, summary in _drawing_order(selection):
        counted = summary.group.counted
        curve = mean_curve([record.curve("test", metric) for record in counted])
        x_values: Sequence[float] = curve.rounds
        if x is MEGABYTES:
            x_values = [total / 1e6 for total in _mean_bytes(counted, curve.rounds)]
            if not x_values:  # the bytes were not recorded
                curve = MeanCurve([], [], None)
        lines.append(_line(run, x_values, curve, unit.factor, ceiling))
    title = f"Test {unit.name}" + (" (%)" if unit.suffix else "")
    number = f"%{{y:,.{unit.digits}f}}"
    suffix = unit.suffix + (" after %{x:,.0f} MB" if x is MEGABYTES else "")
    return {
        "id": name,
        "lines": lines,
        "x": x,
        "y": _value_axis(title, lines, may_be_log=not comparison.higher_is_better),
        "target": None if comparison.target is None else comparison.target * unit.factor,
        "hover": f"{number}{suffix}",
        "hoverSpread": f"{number} ± %{{customdata:,.{unit.digits}f}}{suffix}",
        "hovermode": "closest" if x is MEGABYTES else "x unified",
    }


def _mean_bytes(records: Sequence[RunRecord], rounds: Sequence[int]) -> list[float]:
    sent = [bytes_sent(record, rounds) for record in records]
    return [fmean(column) for column in zip(*sent, strict=True)] if all(sent) else []


def _loss_chart(selection: LineSelection, window: int) -> Chart:
    faint: list[Line] = []
    lines: list[Line] = []
    for run, summary in _drawing_order(selection):
        curves = [record.curve("train", "loss") for record in summary.group.counted]
        if window > 1 and len(curves) == 1 and run is not None and not selection.grey:
            faint.append({"run": run, "x": curves[0][0], "y": _six_digits(curves[0][1]), "faint": True})
        curve = mean_curve([(x, moving_average(y, window)) for x, y in curves])
        lines.append(_line(run, curve.rounds, curve, 1.0, None))
    lines = faint + lines  # faint lines are drawn below the averages
    return {
        "id": "loss-by-round",
        "lines": lines,
        "x": ROUNDS,
        "y": _value_axis("Train loss", lines, may_be_log=True),
        "target": None,
        "hover": "%{y:.4~g}",
        "hoverSpread": "%{y:.4~g} ± %{customdata:.2~g}",
        "hovermode": "x unified",
    }


def _drawing_order(selection: LineSelection) -> list[tuple[int | None, Summary]]:
    """Return grey lines before named lines, which are drawn above them."""
    return [*((None, summary) for summary in selection.grey), *enumerate(selection.named)]


def _value_axis(title: str, lines: Sequence[Line], *, may_be_log: bool) -> Axis:
    """Return the vertical axis, logarithmic if losses or errors span orders of magnitude.

    Where lower is better, a linear axis ends above the named lines: a bad grey trial would flatten them.
    """
    named = [line for line in lines if line["run"] is not None]
    values = [value for line in named for value in line["y"]]
    if may_be_log and values and min(values) > 0 and max(values) > WIDE_SPAN * min(values):
        for line in named:  # a logarithmic axis cannot show a band that reaches zero
            if "low" in line:
                line["low"] = [max(value, min(values) / 2) for value in line["low"]]
        log_title = _plotly_text(f"{title}, log scale")
        return {"title": log_title, "type": "log", "dtick": 1, "exponentformat": "power"}
    axis: Axis = {"title": _plotly_text(title)}
    if may_be_log and len(named) < len(lines) and values:
        high = max(value for line in named for value in (line["high"] if "high" in line else line["y"]))
        low = min(value for line in lines for value in line["y"])
        margin = HEADROOM * (high - low) or HEADROOM
        axis["range"] = [low - margin, high + margin]
    return axis


def _six_digits(values: Sequence[float]) -> list[float]:
    """Round to six digits. More are not visible in a chart and would double the size of the page."""
    return [float(f"{value:.6g}") for value in values]


def _plotly_text(text: str) -> str:
    """Escape text for plotly, which renders a subset of HTML in its labels."""
    return escape(text, quote=False)
