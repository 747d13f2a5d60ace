"""The figures of the page, in the style of `fedopt reproduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fedopt.formatting import metric_unit
from fedopt.reports import PALETTE, RateGrid, cell_colours, confidence_interval, log10
from fedopt.runs.records import RunRecord
from fedopt_paper import plotting
from fedopt_paper.published import METHOD_NAMES

Curves = Mapping[str, Sequence[RunRecord]]  # the seeds of each line, by label


class Axis(NamedTuple):
    """The vertical axis of a panel, in the unit of the figure."""

    low: float | None = None
    high: float | None = None
    line: tuple[str, float] | None = None  # label and position of a horizontal line


@plotting.styled()
def draw_curves(
    title: str,
    panels: Mapping[str, Curves],
    styles: Mapping[str, Any] | None = None,
    axis_of: Mapping[str, Axis] | None = None,
) -> Figure:
    """Draw the metric by round: one panel per entry, one line per method; bands are 95 % intervals."""
    figure, axes = plotting.new_figure(len(panels), title, columns=2, width=4.2, height=3.0)
    shown: dict[str, dict[str, Any]] = {}
    for axis, (name, curves) in zip(axes, panels.items(), strict=True):
        axis.set_title(name)
        axis.set_xlabel("round")
        plotting.draw_grid_lines(axis)
        for label, records in curves.items():
            style = dict((styles or {}).get(label) or plotting.LINE_STYLES[label])
            _draw_band(axis, records, style)
            shown[label] = style
            unit = metric_unit(records[0].metric)
            axis.set_ylabel(f"{unit.name}, {unit.suffix.strip()}" if unit.suffix.strip() else unit.name)
        _adjust(axis, (axis_of or {}).get(name, Axis()))
    handles = [
        Line2D([], [], label=METHOD_NAMES.get(label, label), **style) for label, style in shown.items()
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=3.2)
    return figure


def _adjust(axis: Axes, wanted: Axis) -> None:
    axis.set_ylim(wanted.low, wanted.high)
    if wanted.line:
        label, position = wanted.line
        axis.axhline(position, color="0.4", linewidth=1.0, linestyle=(0, (1, 1)))
        style: dict[str, Any] = {"fontsize": 8, "color": "0.4", "transform": axis.get_yaxis_transform()}
        axis.text(0.99, position, label, va="bottom", ha="right", **style)


def _draw_band(axis: Axes, records: Sequence[RunRecord], style: dict[str, Any]) -> None:
    """Draw the mean over seeds at the rounds that all seeds have evaluated."""
    unit = metric_unit(records[0].metric)
    series = [dict(zip(*record.curve("test", record.metric), strict=True)) for record in records]
    rounds = sorted(set.intersection(*(set(values) for values in series)) - {0})
    intervals = [confidence_interval([values[r] for values in series]) for r in rounds]
    means = [interval.mean * unit.factor for interval in intervals]
    axis.plot(rounds, means, markevery=max(1, len(rounds) // 8), **style)
    if len(records) > 1:
        widths = [(interval.half_width or 0.0) * unit.factor for interval in intervals]
        low, high = ([max(0.0, m + sign * w) for m, w in zip(means, widths, strict=True)] for sign in (-1, 1))
        axis.fill_between(rounds, low, high, color=style["color"], alpha=0.2, linewidth=0)


@plotting.styled()
def draw_heat_maps(title: str, grids: Mapping[str, RateGrid], label: str, near: float) -> Figure:
    """Draw the results of each method over client rate and server rate, on one colour scale.

    Results within `near` of the best one of all methods have a frame.
    """
    figure, axes = plotting.new_figure(len(grids), title, columns=3, width=3.3, height=2.9)
    values = [t.result for grid in grids.values() for t in grid.trials if t.result is not None]
    image = None
    for axis, (method, grid) in zip(axes, grids.items(), strict=True):
        axis.set_title(METHOD_NAMES[method])
        image = _draw_map(axis, grid, max(values, default=1.0) * 100, near * 100)
        axis.set_xlabel("client rate, " + plotting.CLIENT_RATE)
        axis.set_ylabel("server rate, " + plotting.SERVER_RATE)
    if image is not None:
        figure.colorbar(image, ax=axes, label=label, shrink=0.6)
    return figure


def _draw_map(axis: Axes, grid: RateGrid, best: float, near: float) -> AxesImage:
    """Draw the trials of one method in percent, on a scale from 0 to `best`. Missing points stay empty."""
    xs, ys = (sorted({getattr(t, name) for t in grid.trials}) for name in ("client_lr", "server_lr"))
    values = np.full((len(ys), len(xs)), np.nan)
    for trial in grid.trials:
        if trial.result is not None:
            x, y, value = xs.index(trial.client_lr), ys.index(trial.server_lr), trial.result * 100
            colour = cell_colours(value / best)[1]
            values[y, x] = value
            axis.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
            if value >= best - near:
                frame = Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fill=False, edgecolor=colour)
                axis.add_patch(frame)
    axis.set_xticks(range(len(xs)), [f"{log10(x):g}" for x in xs])
    axis.set_yticks(range(len(ys)), [f"{log10(y):g}" for y in ys])
    return axis.imshow(values, origin="lower", aspect="auto", cmap=PALETTE, vmin=0.0, vmax=best)


@plotting.styled()
def draw_lines(
    title: str, lines: Mapping[str, Mapping[float, float]], labels: tuple[str, str], step: float
) -> Figure:
    """Draw one line per method: values by a rate or by tau."""
    figure, (axis,) = plotting.new_figure(1, title, width=6.0, height=3.0)
    plotting.draw_grid_lines(axis)
    for position, (method, points) in enumerate(lines.items()):
        # Small shifts keep lines with equal values apart.
        xs = [x + 0.02 * (position - len(lines) / 2) for x in sorted(points)]
        axis.plot(xs, [points[x] for x in sorted(points)], **plotting.LINE_STYLES[method])
    axis.set_xlabel(labels[0])
    axis.set_ylabel(labels[1])
    plotting.set_grid_ticks(axis, step)
    plotting.draw_method_legend(figure, lines)
    return figure
