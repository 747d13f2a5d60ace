"""Draw a chart as SVG paths.

The page shows this drawing without JavaScript and in print. `templates/charts.js` draws the same picture when
the reader zooms or changes the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedopt.reporting.axes import Scale, format_ticks, value_range
from fedopt.reporting.charts import Chart, ChartLine, LegendEntry, moving_average

WIDE, NARROW = (1120.0, 400.0), (540.0, 320.0)  # size of a drawing, in pixels
TOP, RIGHT, BOTTOM = 34.0, 18.0, 46.0  # margins; the left one depends on the tick labels
TICK_SPACING = (90.0, 52.0)  # pixels between the ticks of the axes
DIGIT_WIDTH = 7.2  # of a tick label, in pixels
MARKERS = 12  # on a line
BAND_SHARE = 0.5  # bands extend the axis by at most this share of the span of the lines


class Tick(NamedTuple):
    position: float
    label: str


class DrawnLine(NamedTuple):
    entry: LegendEntry
    path: str
    band: str
    raw: str  # the line without smoothing, drawn faintly
    markers: list[tuple[float, float]]


class Drawing(NamedTuple):
    """Paths and ticks of a chart. The plot area lies between the margins."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    target: float | None  # vertical position
    trials: list[tuple[str, str]]  # colour and path
    lines: list[DrawnLine]


def draw_chart(chart: Chart) -> Drawing:
    """Return the drawing of a chart with all its lines."""
    width, height = WIDE if chart.wide else NARROW
    named = [line for line in chart.lines if line.entry is not None]
    y_range = _vertical_range(chart, named)
    ends = [line.x[-1] for line in chart.lines if line.x]
    x_range = (0.0, max(ends, default=0.0) or 1.0)
    vertical = Scale(*y_range, height - BOTTOM, TOP, chart.y.log)
    y_values = vertical.ticks(TICK_SPACING[1])
    labels = format_ticks(y_values, chart.y.log)
    left = 16 + DIGIT_WIDTH * max(map(len, labels), default=1)
    horizontal = Scale(*x_range, left, width - RIGHT)
    x_values = [x for x in horizontal.ticks(TICK_SPACING[0]) if x.is_integer() or not chart.x.whole]
    trials = [line for line in chart.lines if line.entry is None]
    return Drawing(
        width,
        height,
        left,
        width - RIGHT,
        TOP,
        height - BOTTOM,
        [
            Tick(*pair)
            for pair in zip(map(horizontal.position, x_values), format_ticks(x_values, False), strict=True)
        ],
        [Tick(*pair) for pair in zip(map(vertical.position, y_values), labels, strict=True)],
        _target_position(chart, vertical),
        [(line.colour, _path(line.x, line.y, horizontal, vertical)) for line in trials],
        [_draw_line(chart, line, horizontal, vertical) for line in named],
    )


def _draw_line(chart: Chart, line: ChartLine, horizontal: Scale, vertical: Scale) -> DrawnLine:
    """Draw a line. Smoothing does not change the band, which is the interval of each point."""
    assert line.entry is not None
    smooth = moving_average(line.y, chart.window)
    points = list(_points(line.x, smooth, horizontal, vertical))
    step = max(1, len(points) // MARKERS)
    band = ""
    if line.low is not None and line.high is not None:
        bottom = [max(value, vertical.low) for value in line.low]  # a logarithmic axis cannot show zero
        back = _path(line.x[::-1], bottom[::-1], horizontal, vertical).replace("M", "L", 1)
        band = f"{_path(line.x, line.high, horizontal, vertical)}{back}Z" if back else ""
    return DrawnLine(
        chart.legend[line.entry],
        _path(line.x, smooth, horizontal, vertical),
        band,
        _path(line.x, line.y, horizontal, vertical) if chart.window > 1 else "",
        [point for index, point in enumerate(points) if index % step == 0 or index == len(points) - 1],
    )


def _vertical_range(chart: Chart, named: Sequence[ChartLine]) -> tuple[float, float]:
    """Return the range of the named lines, their bands within limits, and the trials if they fit."""
    values = [value for line in named for value in line.y]
    if chart.y.fits_trials:
        values += [value for line in chart.lines if line.entry is None for value in line.y]
    low, high = value_range(values, chart.y.log)
    reach = 0.0 if chart.y.log else BAND_SHARE * (high - low)
    lows = [value for line in named for value in line.low or ()]
    highs = [value for line in named for value in line.high or ()]
    return max(min([low, *lows]), low - reach), min(max([high, *highs]), high + reach)


def _target_position(chart: Chart, vertical: Scale) -> float | None:
    is_visible = chart.target is not None and vertical.low <= chart.target <= vertical.high
    return vertical.position(chart.target) if is_visible and chart.target is not None else None


def _points(
    x: Sequence[float], y: Sequence[float], horizontal: Scale, vertical: Scale
) -> Iterable[tuple[float, float]]:
    for at, value in zip(x, y, strict=True):
        if value > 0 or not vertical.log:
            yield round(horizontal.position(at), 1), round(vertical.position(value), 1)


def _path(x: Sequence[float], y: Sequence[float], horizontal: Scale, vertical: Scale) -> str:
    """Return a path through the points. Of several points in a column of pixels, it keeps the extremes."""
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in _points(x, y, horizontal, vertical):
        columns.setdefault(math.floor(point[0]), []).append(point)
    kept: list[tuple[float, float]] = []
    for points in columns.values():
        extremes = {min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])}
        kept += points if len(points) < 3 else [point for point in points if point in extremes]
    return "".join(f"{'L' if index else 'M'}{px:g} {py:g}" for index, (px, py) in enumerate(kept))
