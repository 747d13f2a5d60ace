"""Heat maps over client and server rate, and how easy each optimizer is to tune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure

from fedopt.reports import MethodTrials, measure_ease_of_tuning, metric_scale, metric_tolerance, text_colour
from fedopt.tasks import TASKS
from fedopt_paper.artifacts.cells import NO_NUMBERS, ArtifactContent, paper_unit, unit_text, value_cell
from fedopt_paper.comparison import ComparisonCell, ComparisonTable, axis_text, log10_text, point_text
from fedopt_paper.plan import RunPlan
from fedopt_paper.plotting import CLIENT_RATE, SERVER_RATE, TEXT, new_figure, styled
from fedopt_paper.published import ADAPTIVE, HEAT_MAP_TAU, METHOD_NAMES, OPTIMIZERS, TASK_NAMES
from fedopt_paper.results import DIVERGED, RunReader, RunValue, missing_runs, select_best

_MARKS = {"diverged": "×", "failed": "!", "damaged": "!"}


def heatmaps(reader: RunReader) -> ArtifactContent:
    """Show the validation metric for each pair of rates, one map per optimizer of one task."""
    plan = reader.plan
    (task,) = plan.tasks
    values = {m: [reader.value(run) for run in plan.heat_map(task, m)] for m in OPTIMIZERS}
    maps = [_map_table(plan, task, method, values[method]) for method in OPTIMIZERS]
    tables = (_tuning_table(plan, task, values), *maps)
    return ArtifactContent(tables, _draw_maps(plan, task, maps), (NO_NUMBERS,))


def _map_table(plan: RunPlan, task: str, method: str, values: Sequence[RunValue]) -> ComparisonTable:
    """Build the table of one map: rows from the largest server rate down, columns by client rate."""
    ordered = sorted(values, key=lambda v: (-v.run.point["server_lr"], v.run.point["client_lr"]))
    cells = [
        value_cell(
            plan,
            value,
            row=log10_text(value.run.point["server_lr"]),
            column=axis_text("client_lr", value.run.point["client_lr"]),
        )
        for value in ordered
    ]
    title = f"{TASK_NAMES[task]}, {_map_title(method)}: {unit_text(task)}"
    return ComparisonTable(title, tuple(cells), axis_text("server_lr"), compare=False)


def _map_title(method: str) -> str:
    tau = f", τ = 1e{log10_text(HEAT_MAP_TAU)}" if method in ADAPTIVE else ""
    return METHOD_NAMES[method] + tau


def _tuning_table(plan: RunPlan, task: str, values: dict[str, list[RunValue]]) -> ComparisonTable:
    """Show how easy each optimizer is to tune, compared with the best run of all optimizers."""
    tolerance = metric_tolerance(TASKS[task].metric)
    higher_is_better = TASKS[task].better == "higher"
    trials = [MethodTrials(method, method, [run.value for run in values[method]]) for method in OPTIMIZERS]
    eases = measure_ease_of_tuning(trials, higher_is_better, tolerance)
    # A missing run of any optimizer could be the best of all.
    is_complete = all(missing_runs(results) is None for results in values.values())
    cells = []
    for ease in eases:
        results, row, label = values[ease.method], METHOD_NAMES[ease.method], plan.label(task)
        best = select_best(results, not higher_is_better)
        detail = point_text(best.run.point, missing_runs(results) or "") if best else ""
        best_value = best or RunValue(results[0].run, None)
        cells.append(
            value_cell(plan, best_value, row=row, column=f"best {unit_text(task)}", unit="", detail=detail)
        )
        shares = {
            "near the best of all, %": (ease.near_best, ease.near_best_share),
            "better than the best FedAvg, %": (ease.beats_reference, ease.beats_reference_share),
        }
        for column, (count, share) in shares.items():
            if is_complete:
                ours = None if share is None else 100 * share
                detail = "" if share is None else f"({count} of {ease.total})"
                cells.append(ComparisonCell(row, column, ours, label=label, digits=0, detail=detail))
            else:
                cells.append(ComparisonCell(row, column, state=_progress(results), label=label, digits=0))
    note = (
        f"Near: within {tolerance.text} of the best run of all optimizers. Runs that diverged are neither "
        "near nor better."
    )
    return ComparisonTable("Ease of tuning", tuple(cells), "optimizer", note, compare=False)


def _progress(values: Sequence[RunValue]) -> str:
    done = sum(value.value is not None or value.state == DIVERGED for value in values)
    return f"{done} of {len(values)} trials done"


@styled()
def _draw_maps(plan: RunPlan, task: str, maps: Sequence[ComparisonTable]) -> Figure:
    unit = paper_unit(task)
    title = f"{TASK_NAMES[task]}{plan.title_suffix}: validation {unit.name}"
    figure, axes = new_figure(len(maps), title, width=3.1, height=2.9)
    known = [cell.ours for table in maps for cell in table.cells if cell.ours is not None]
    colours = _choose_colours(known, TASKS[task].better == "higher")
    for axis, method, table in zip(axes, OPTIMIZERS, maps, strict=True):
        axis.set_title(_map_title(method))
        _draw_map(axis, table, colours)
    figure.colorbar(ScalarMappable(*colours), ax=axes, label=unit_text(task), shrink=0.8, pad=0.02)
    return figure


class _Colours(NamedTuple):
    norm: Normalize
    map: Colormap


def _choose_colours(known: Sequence[float], higher_is_better: bool) -> _Colours:
    """Return one colour scale for all maps, brighter for better."""
    scale = metric_scale(known, higher_is_better)
    low, high = sorted((scale.worst, scale.best))
    if high == low:
        low, high = low - 0.5, high + 0.5
    norm = LogNorm(low, high) if scale.log else Normalize(low, high)
    return _Colours(norm, matplotlib.colormaps["viridis" if higher_is_better else "viridis_r"])


def _draw_map(axis: Axes, table: ComparisonTable, colours: _Colours) -> None:
    """Draw a table as a map with the number in each cell: × for diverged runs, ! for failed ones."""
    rows, columns = table.rows, table.columns
    image = np.full((len(rows), len(columns)), np.nan)
    is_dense = len(columns) > 4
    size = 6 if is_dense else 8
    for cell in table.cells:
        x, y = columns.index(cell.column), rows.index(cell.row)
        text, colour = _MARKS.get(cell.state, ""), TEXT
        if cell.ours is not None:
            image[y, x] = cell.ours
            text = f"{cell.ours:.{0 if is_dense and abs(cell.ours) >= 10 else cell.digits}f}"
            red, green, blue, _ = colours.map(float(colours.norm(cell.ours)))
            colour = text_colour(red, green, blue)
        axis.text(x, y, text, ha="center", va="center", color=colour, fontsize=size)
    axis.imshow(image, aspect="auto", cmap=colours.map, norm=colours.norm)
    axis.set_xticks(range(len(columns)), [column.rpartition(" ")[2] for column in columns])
    axis.set_yticks(range(len(rows)), rows)
    axis.set_xlabel(CLIENT_RATE)
    axis.set_ylabel(SERVER_RATE)
    axis.spines[:].set_visible(False)
