"""The curves of the report page as numbers: means over seeds, their bands, and the axes.

Where a configuration has several seeds, its line is their mean at each round that all of them have, and its
band the 95 % interval of that mean. The page's script only draws what is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import Any, NamedTuple

from fedopt.analysis.seeds import interval
from fedopt.analysis.summary import Summary, bytes_at, target_value
from fedopt.formatting import is_fraction, unit_of
from fedopt.report.line_styles import Drawn, line_style
from fedopt.runs.records import RunRecord

SMOOTHING = 12  # the moving average spans a twelfth of the longest run ...
MAX_WINDOW = 25  # ... and never more rounds than this
WIDE_SPAN = 100.0  # values that span more than this factor get a logarithmic axis
GREY_POINTS = 100  # more points than this say nothing in a thin grey line
HEADROOM = 0.05  # of the axis, above and below what it has to show

Line = dict[str, Any]
Chart = dict[str, Any]
Axis = dict[str, Any]

FROM_ZERO: Axis = {"rangemode": "tozero", "tickformat": ",~r"}
ROUNDS: Axis = FROM_ZERO | {"title": "Round", "unifiedhovertitle": {"text": "round %{x}"}}
MEGABYTES: Axis = FROM_ZERO | {"title": "Communication (MB)"}


class Curve(NamedTuple):
    """A line over several seeds."""

    rounds: list[int]
    means: list[float]
    halves: list[float] | None  # None with one seed


def line_name(summary: Summary) -> str:
    """A configuration's name in legends, which say when its line ends early."""
    return f"{summary.label} ({summary.state})" if summary.state else summary.label


def chart_data(summaries: Sequence[Summary], shown: Drawn, window: int) -> dict[str, Any]:
    """What the page's script draws: the styles of the named lines, and three charts."""
    runs = [{"name": _plain(line_name(s)), **line_style(shown.place(s) or 0)._asdict()} for s in shown.named]
    return {
        "runs": runs,
        "charts": [
            _metric_chart("metric-by-round", summaries, shown, ROUNDS, ""),
            _loss_chart(shown, window),
            _metric_chart("metric-by-megabytes", summaries, shown, MEGABYTES, " after %{x:,.0f} MB"),
        ],
    }


def smoothing_window(records: Sequence[RunRecord]) -> int:
    """How many rounds the moving average of the train loss spans, one choice for all runs."""
    return max(1, min(MAX_WINDOW, max(record.rounds for record in records) // SMOOTHING))


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and up to `window - 1` before it, so that no point knows the future.

    >>> moving_average([1.0, 3.0, 5.0], 2)
    [1.0, 2.0, 4.0]
    """
    return [fmean(values[max(0, at + 1 - window) : at + 1]) for at in range(len(values))]


def over_seeds(curves: Sequence[tuple[list[int], list[float]]]) -> Curve:
    """The mean of several curves at the rounds that all of them have, and half its 95 % interval.

    >>> over_seeds([([0, 2, 4], [1.0, 2.0, 3.0]), ([0, 2], [1.0, 4.0])]).means
    [1.0, 3.0]
    """
    tables = [dict(zip(*curve, strict=True)) for curve in curves]
    rounds = [at for at in curves[0][0] if all(at in table for table in tables)]
    points = [interval([table[at] for table in tables]) for at in rounds]
    halves = None if len(curves) == 1 else [point.half or 0.0 for point in points]
    return Curve(rounds, [point.mean for point in points], halves)


def _line(run: int | None, x: Sequence[float], curve: Curve, factor: float, ceiling: float | None) -> Line:
    """A line of the page; a `run` of None is a grey one, thinned out and without a band."""
    y = [value * factor for value in curve.means]
    if run is None:
        step = max(1, len(y) // GREY_POINTS)
        return {"run": None, "x": _short(x[::step]), "y": _short(y[::step])}
    line: Line = {"run": run, "x": _short(x), "y": _short(y)}
    if curve.halves is not None:
        halves = [half * factor for half in curve.halves]
        floor = 0.0 if min(y, default=0.0) >= 0 else None  # a loss or a share cannot be below nothing
        low = [value - half for value, half in zip(y, halves, strict=True)]
        high = [value + half for value, half in zip(y, halves, strict=True)]
        line["half"] = _short(halves)
        line["low"] = _short([value if floor is None else max(floor, value) for value in low])
        line["high"] = _short([value if ceiling is None else min(ceiling, value) for value in high])
    return line


def _metric_chart(name: str, summaries: Sequence[Summary], shown: Drawn, x: Axis, at: str) -> Chart:
    record = summaries[0].record
    unit, target = unit_of(record.metric), target_value(summaries)
    ceiling = unit.factor if is_fraction(record.metric) else None
    lines: list[Line] = []
    for run, summary in _in_order(shown):
        curve = over_seeds([one.curve("test", record.metric) for one in summary.counted])
        across: Sequence[float] = curve.rounds
        if at:
            across = [total / 1e6 for total in _mean_bytes(summary.counted, curve.rounds)]
            if not across:  # what was sent is not recorded
                curve = Curve([], [], None)
        lines.append(_line(run, across, curve, unit.factor, ceiling))
    title = f"Test {unit.name}" + (" (%)" if unit.suffix else "")
    number = f"%{{y:,.{unit.digits}f}}"
    return {
        "id": name,
        "lines": lines,
        "x": x,
        "y": _value_axis(title, lines, may_be_log=not record.higher_is_better),
        "target": None if target is None else target * unit.factor,
        "hover": f"{number}{unit.suffix}{at}",
        "hoverSpread": f"{number} ± %{{customdata:,.{unit.digits}f}}{unit.suffix}{at}",
        "hovermode": "closest" if at else "x unified",
    }


def _mean_bytes(records: Sequence[RunRecord], rounds: Sequence[int]) -> list[float]:
    sent = [bytes_at(record, rounds) for record in records]
    return [fmean(column) for column in zip(*sent, strict=True)] if all(sent) else []


def _loss_chart(shown: Drawn, window: int) -> Chart:
    faint: list[Line] = []
    lines: list[Line] = []
    for run, summary in _in_order(shown):
        curves = [record.curve("train", "loss") for record in summary.counted]
        if window > 1 and len(curves) == 1 and run is not None and not shown.grey:
            faint.append({"run": run, "x": curves[0][0], "y": _short(curves[0][1]), "faint": True})
        curve = over_seeds([(x, moving_average(y, window)) for x, y in curves])
        lines.append(_line(run, curve.rounds, curve, 1.0, None))
    lines = faint + lines  # the faint ones lie under the averages
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


def _in_order(shown: Drawn) -> list[tuple[int | None, Summary]]:
    """Grey lines first, so that they lie under the named ones."""
    return [*((None, summary) for summary in shown.grey), *enumerate(shown.named)]


def _value_axis(title: str, lines: Sequence[Line], *, may_be_log: bool) -> Axis:
    """The vertical axis: logarithmic where losses span orders of magnitude, as a diverging run's do.

    Where lower is better, it ends a little above the named lines: one bad trial would flatten all others.
    """
    named = [line for line in lines if line["run"] is not None]
    values = [value for line in named for value in line["y"]]
    wide = bool(values) and min(values) > 0 and max(values) > WIDE_SPAN * min(values)
    if may_be_log and wide:
        for line in named:  # a band that reaches zero has no place on a logarithmic axis
            if "low" in line:
                line["low"] = [max(value, min(values) / 2) for value in line["low"]]
        return {"title": _plain(f"{title}, log scale"), "type": "log", "dtick": 1, "exponentformat": "power"}
    axis: Axis = {"title": _plain(title)}
    if may_be_log and len(named) < len(lines) and values:
        top = max(value for line in named for value in (line["high"] if "high" in line else line["y"]))
        low = min(value for line in lines for value in line["y"])
        room = HEADROOM * (top - low) or HEADROOM
        axis["range"] = [low - room, top + room]
    return axis


def _short(values: Sequence[float]) -> list[float]:
    """Six digits: nobody sees more of them in a chart, and the page is half as large."""
    return [float(f"{value:.6g}") for value in values]


def _plain(text: str) -> str:
    """`text` as plotly shows it literally: its labels read a subset of HTML."""
    return escape(text, quote=False)
