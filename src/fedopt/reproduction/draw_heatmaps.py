"""The client x server learning-rate heat maps, and the share of each that is near its best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize

from fedopt.analysis import heatmap
from fedopt.formatting import Unit
from fedopt.reproduction.artifact_cells import Drawn, paper_unit, unit_text
from fedopt.reproduction.figures import CLIENT_RATE, INK, SERVER_RATE, grid, styled
from fedopt.reproduction.published import ADAPTIVE, HEAT_MAP_TAU, METHOD_NAMES, OPTIMIZERS, TASK_NAMES
from fedopt.reproduction.study import DIVERGED, Result, Spec, Study, best_of, grid_values, open_runs
from fedopt.reproduction.tables import PICTURE, Entry, Table, axis_label, axis_title, chosen_text
from fedopt.tasks import TASKS


def plan_heatmaps(study: Study) -> Iterator[Spec]:
    for task in study.tasks:
        for method in OPTIMIZERS:
            yield from study.heat_map(task, method)


def heatmaps(study: Study) -> Drawn:
    """Validation metric at each client and server rate, a map for each optimizer of one task."""
    (task,) = study.tasks
    unit = paper_unit(task)
    results = {m: [study.result(spec) for spec in study.heat_map(task, m)] for m in OPTIMIZERS}
    known = [r.value * unit.factor for rs in results.values() for r in rs if r.value is not None]
    colours = _colours(known, TASKS[task].better == "lower")
    with styled():
        figure, axes = grid(len(OPTIMIZERS), width=3.1, height=2.9)
        for axis, method in zip(axes, OPTIMIZERS, strict=True):
            _map(axis, _titled(method), results[method], unit, colours)
        bar = ScalarMappable(colours.norm, colours.map)
        figure.colorbar(bar, ax=axes, label=f"{unit.name}{unit.suffix}", shrink=0.8, pad=0.02)
        title = f"{TASK_NAMES[task]}{study.mark}: validation {unit.name}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    tables = [_ease_table(study, task, results)]
    for method in OPTIMIZERS:
        entries = tuple(_map_entry(study, task, result) for result in _as_drawn(results[method]))
        name = f"{TASK_NAMES[task]}, {_titled(method)}: {unit_text(task)}"
        tables.append(Table(name, entries, axis_title("server_lr"), compare=False))
    return Drawn(tuple(tables), figure, (PICTURE,))


def _titled(method: str) -> str:
    tau = f", τ = 1e{axis_label(HEAT_MAP_TAU)}" if method in ADAPTIVE else ""
    return METHOD_NAMES[method] + tau


def _as_drawn(results: Sequence[Result]) -> list[Result]:
    """Server rates downwards from the largest, client rates to the right, as in the figure."""
    return sorted(results, key=lambda r: (-r.spec.at["server_lr"], r.spec.at["client_lr"]))


class Colours(NamedTuple):
    norm: Normalize
    map: Colormap


def _colours(known: Sequence[float], lower_is_better: bool) -> Colours:
    """One scale for all maps of a task, bright for better; logarithmic where errors span decades."""
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if high == low:
        low, high = low - 0.5, high + 0.5
    norm = LogNorm(low, high) if lower_is_better and 0 < 10 * low < high else Normalize(low, high)
    return Colours(norm, matplotlib.colormaps["viridis_r" if lower_is_better else "viridis"])


def _map(axis: Axes, title: str, results: Sequence[Result], unit: Unit, colours: Colours) -> None:
    """A map with the number in each cell; × where the run diverged, ! where it failed or is damaged."""
    specs = [result.spec for result in results]
    clients, servers = (grid_values(specs, name) for name in ("client_lr", "server_lr"))
    cells = np.full((len(servers), len(clients)), np.nan)
    many = len(clients) > 4
    size = 6 if many else 8
    for result in results:
        x, y = clients.index(result.spec.at["client_lr"]), servers.index(result.spec.at["server_lr"])
        if result.value is None:
            mark = {"diverged": "×", "failed": "!", "damaged": "!"}.get(result.state, "")
            axis.text(x, y, mark, ha="center", va="center", color=INK, fontsize=size)
            continue
        cells[y, x] = value = result.value * unit.factor
        text = f"{value:.{0 if many and abs(value) >= 10 else unit.digits}f}"
        red, green, blue, _ = colours.map(float(colours.norm(value)))
        ink = "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "#ffffff"
        axis.text(x, y, text, ha="center", va="center", color=ink, fontsize=size)
    axis.imshow(cells, origin="lower", aspect="auto", cmap=colours.map, norm=colours.norm)
    axis.set_title(title)
    axis.set_xticks(range(len(clients)), [axis_label(v) for v in clients])
    axis.set_yticks(range(len(servers)), [axis_label(v) for v in servers])
    axis.set_xlabel(CLIENT_RATE)
    axis.set_ylabel(SERVER_RATE)
    axis.spines[:].set_visible(False)


def _map_entry(study: Study, task: str, result: Result) -> Entry:
    unit = paper_unit(task)
    return Entry(
        row=axis_label(result.spec.at["server_lr"]),
        column=axis_title("client_lr", result.spec.at["client_lr"]),
        ours=None if result.value is None else result.value * unit.factor,
        state=result.state,
        run=result.run,
        word=study.word(task),
        digits=unit.digits,
        unit=unit.name + unit.suffix,
    )


def _ease_table(study: Study, task: str, results: dict[str, list[Result]]) -> Table:
    """How easy each optimizer is to tune: the share of its map that comes near its best."""
    unit, distance = paper_unit(task), heatmap.metric_tolerance(TASKS[task].metric)
    entries = []
    for method in OPTIMIZERS:
        row, word = METHOD_NAMES[method], study.word(task)
        records = study.records(result.spec for result in results[method])
        found = heatmap.find_grids(records)
        best = best_of(results[method])
        why = open_runs(results[method])
        value = None if best is None or best.value is None else best.value * unit.factor
        entries.append(
            Entry(
                row,
                f"best {unit_text(task)}",
                value,
                run=best.run if best else None,
                word=word,
                digits=unit.digits,
                detail=chosen_text(best.spec.at, why or "") if best else "",
            )
        )
        share = found[0].near_best(distance) if found else None
        percent = None if share is None or share.share is None else 100 * share.share
        counted = f"({share.within} of {share.total})" if share else ""
        entry = Entry(row, "share near the best, %", percent, word=word, digits=0, detail=counted)
        if why is not None:  # those that are missing could be near, or a better best
            entry = replace(entry, ours=None, state=_progress(results[method], why), detail="")
        entries.append(entry)
    note = f"Near: within {distance.text} of the optimizer's own best; a run that diverged is not near."
    return Table("Ease of tuning", tuple(entries), "optimizer", note, compare=False)


def _progress(results: Sequence[Result], why: str) -> str:
    """How far an incomplete grid is."""
    open_ones = sum(r.value is None and r.state != DIVERGED for r in results)
    return f"{len(results) - open_ones} of {len(results)} trials done" if why else ""
