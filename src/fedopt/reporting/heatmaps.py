"""The heat maps of the report as plain data.

They are HTML tables instead of images: cells are reachable by keyboard, readable by screen readers and
visible without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedopt.analysis.ease_of_tuning import EaseOfTuning, grid_ease_of_tuning
from fedopt.analysis.heatmap import (
    HeatMap,
    MetricScale,
    RateGrid,
    RateTrial,
    find_grids,
    metric_scale,
    metric_tolerance,
)
from fedopt.analysis.run_numbers import TRAIN_LOSS
from fedopt.analysis.seeds import Interval
from fedopt.analysis.selection import mean_unit
from fedopt.formatting import ABSENT, Unit, format_exponent, format_setting
from fedopt.reporting.charts import Chart
from fedopt.reporting.colours import cell_colours
from fedopt.reporting.sorted_trials import sorted_trials_chart
from fedopt.reporting.sweep_view import shown_metric
from fedopt.runs.discover import selection_of
from fedopt.runs.records import RunRecord, averaged_rounds

STATE_MARKS = {"diverged": "×", "failed": "!", "pruned": "‖", "unfinished": "…"}
STAR, RING = "★", "○"
BY_RULE = "selected by the paper's rule"
MAX_WIDE = 9  # columns of a map with decimals in its cells


class CellColours(NamedTuple):
    """Background and text of a cell on the scale of all maps, and on the scale of its own map."""

    background: str
    text: str
    own_background: str
    own_text: str


class MapCell(NamedTuple):
    """A cell of a heat map. `trial` is the row of its trial in the table of the card, None without one."""

    text: str
    label: str
    trial: int | None
    kind: str  # CSS classes
    colours: CellColours | None = None
    marks: str = ""
    is_entry: bool = False  # receives the focus of the map


class MapTable(NamedTuple):
    """A heat map: server rates in descending order from top to bottom, client rates from left to right."""

    tau: str | None
    rows: list[tuple[str, list[MapCell]]]  # server rate and cells
    client_rates: list[str]
    edges: dict[str, str]  # sides of the map at which the selected trial lies, with a description


class MethodCard(NamedTuple):
    """The maps of one method, one per tau, and its trials as a table."""

    method: str
    maps: list[MapTable]
    selected: int  # index of the map with the best trial
    has_best: bool
    trials: list[dict[str, str]]

    @property
    def heads(self) -> list[str]:
        """The columns of the table of trials: the facts that at least one trial has."""
        return [name for name in self.trials[0] if any(trial[name] for trial in self.trials)]


class TuningRow(NamedTuple):
    """How easy a method is to tune."""

    best: str
    best_rates: str
    selected: str  # by the paper's rule
    ease: EaseOfTuning


class HeatMaps(NamedTuple):
    """The section on learning rates."""

    unit: Unit
    scale: MetricScale | None  # None if no trial has a result
    scale_colours: list[str]
    marks: dict[str, str]  # of the states that occur
    rounds: list[int]  # different lengths of the trials that are done
    averaged: str  # the rounds over which the values are means
    selects_metric: bool  # the sweep selected by the metric of the maps
    selects_train_loss: bool
    tolerance: str
    cards: list[MethodCard]
    tuning: list[TuningRow]
    sorted_trials: Chart


def heat_maps(records: Sequence[RunRecord]) -> HeatMaps | None:
    """Return the section on learning rates, or None if no grid of rates was tried."""
    selection = selection_of(records)
    metric = shown_metric(records, selection)
    grids = [grid for grid in find_grids(records, metric) if grid.heat_maps()]
    if not grids:
        return None
    eases = grid_ease_of_tuning(grids, metric)
    unit, trials = mean_unit(metric), [trial for grid in grids for trial in grid.trials]
    results = [trial.result for trial in trials if trial.result is not None]
    scale = metric_scale(results, grids[0].higher_is_better)
    states = {trial.state for trial in trials}
    marks = {mark: state for state, mark in STATE_MARKS.items() if state in states}
    if any(not trial.state and trial.value is None for trial in trials):
        marks["?"] = "no finite result"
    return HeatMaps(
        unit=unit,
        scale=scale if results else None,
        scale_colours=[cell_colours(step / 10)[0] for step in range(11)],
        marks=marks,
        rounds=sorted({r.rounds for trial in trials if not trial.state for r in trial.group.records}),
        averaged=averaged_rounds({r.rounds for trial in trials for r in trial.group.counted}),
        selects_metric=selection == metric,
        selects_train_loss=selection == TRAIN_LOSS,
        tolerance=metric_tolerance(metric).text,
        cards=[_method_card(grid, scale, unit, selection) for grid in grids],
        tuning=[_tuning_row(grid, unit, ease) for grid, ease in zip(grids, eases, strict=True)],
        sorted_trials=sorted_trials_chart(eases, grids, metric),
    )


def _method_card(grid: RateGrid, scale: MetricScale, unit: Unit, selection: str | None) -> MethodCard:
    maps, best = grid.heat_maps(), grid.best
    taus = [heat_map.tau for heat_map in maps]
    return MethodCard(
        method=grid.method,
        maps=[_map_table(grid, heat_map, scale, unit, selection) for heat_map in maps],
        selected=taus.index(best.tau) if best is not None and best.tau in taus else 0,
        has_best=best is not None,
        trials=[_trial_facts(trial, unit, _marks(grid, trial)) for trial in grid.trials],
    )


def _map_table(
    grid: RateGrid, heat_map: HeatMap, scale: MetricScale, unit: Unit, selection: str | None
) -> MapTable:
    """Return one map of a grid. Marks show the best and the selected trial of the whole grid."""
    entry = heat_map.grid.best or next(iter(heat_map.cells.values()))
    results = [trial.result for trial in heat_map.cells.values() if trial.result is not None]
    own_scale = metric_scale(results, grid.higher_is_better)
    digits = 0 if len(heat_map.client_rates) > MAX_WIDE and unit.suffix else min(unit.digits, 3)
    rows = []
    for server in reversed(heat_map.server_rates):
        cells = []
        for client in heat_map.client_rates:
            trial = heat_map.cells.get((client, server))
            label = f"client rate {format_setting(client)}, server rate {format_setting(server)}"
            if trial is None:
                cells.append(MapCell("", f"{label}: no trial", None, "cell blank"))
            else:
                cell = _trial_cell(grid, trial, (scale, own_scale), unit, digits)
                cells.append(cell._replace(is_entry=trial is entry))
        rows.append((format_exponent(server), cells))
    return MapTable(
        tau=None if heat_map.tau is None else format_setting(heat_map.tau),
        rows=rows,
        client_rates=[format_exponent(client) for client in heat_map.client_rates],
        edges=_edges(heat_map, grid.selected_by(selection)),
    )


def _edges(heat_map: HeatMap, trial: RateTrial | None) -> dict[str, str]:
    """Return the sides of a map at which the selected trial of the method lies."""
    if trial is None or heat_map.cells.get((trial.client_lr, trial.server_lr)) is not trial:
        return {}
    clients, servers = heat_map.client_rates, heat_map.server_rates
    sides = {
        "left": (trial.client_lr == clients[0], "smallest client rate"),
        "right": (trial.client_lr == clients[-1], "largest client rate"),
        "bottom": (trial.server_lr == servers[0], "smallest server rate"),
        "top": (trial.server_lr == servers[-1], "largest server rate"),
    }
    return {side: description for side, (is_there, description) in sides.items() if is_there}


def _marks(grid: RateGrid, trial: RateTrial) -> str:
    """Return the marks of the best trial of a grid and of the trial that the paper's rule selects."""
    return STAR * (trial is grid.best) + RING * (trial is grid.selected_by_papers_rule)


def _trial_cell(
    grid: RateGrid, trial: RateTrial, scales: tuple[MetricScale, MetricScale], unit: Unit, digits: int
) -> MapCell:
    marks, at = _marks(grid, trial), grid.trials.index(trial)
    rates = f"client rate {format_setting(trial.client_lr)}, server rate {format_setting(trial.server_lr)}"
    label = f"{rates}: {trial.state or 'done'}, {unit.name} {_value_text(trial, unit)}"
    label += ", best" * (STAR in marks) + f", {BY_RULE}" * (RING in marks)
    kind = "cell marked" if marks else "cell"
    if trial.result is None:
        return MapCell(STATE_MARKS.get(trial.state, "?"), label, at, f"{kind} ended", marks=marks)
    shared, own = (cell_colours(scale.position(trial.result)) for scale in scales)
    text = f"{trial.result * unit.factor:.{digits}f}"
    return MapCell(text, label, at, kind, CellColours(*shared, *own), marks)


def _trial_facts(trial: RateTrial, unit: Unit, marks: str) -> dict[str, str]:
    """Return the facts of a trial by name."""
    records = trial.group.records
    marked = [f"best {unit.name}"] * (STAR in marks) + [BY_RULE] * (RING in marks)
    rates = {"client rate": trial.client_lr, "server rate": trial.server_lr}
    return {
        **{name: f"{format_setting(rate)} (log10 {format_exponent(rate)})" for name, rate in rates.items()},
        "tau": "" if trial.tau is None else format_setting(trial.tau),
        "last evaluation": _interval_text(trial.last_interval, unit),
        unit.name: _value_text(trial, unit),
        "train loss": ABSENT if trial.train_loss is None else f"{trial.train_loss:.4g}",
        "status": f"{trial.state or 'done'}, {max(record.rounds for record in records)} rounds",
        "seeds": str(len(records)) if len(records) > 1 else "",
        "marked as": " and ".join(marked),
        "run": ", ".join(str(record.path) for record in records),
    }


def _tuning_row(grid: RateGrid, unit: Unit, ease: EaseOfTuning) -> TuningRow:
    best, choice = grid.best, grid.selected_by_papers_rule
    selected = _value_text(choice, unit)
    return TuningRow(
        best=_value_text(best, unit),
        best_rates=_rates_text(best),
        selected=selected if selected == ABSENT else f"{selected} at {_rates_text(choice)}",
        ease=ease,
    )


def _value_text(trial: RateTrial | None, unit: Unit) -> str:
    return _interval_text(trial.value_interval if trial else None, unit)


def _interval_text(interval: Interval | None, unit: Unit) -> str:
    return ABSENT if interval is None else unit.format(interval.mean)


def _rates_text(trial: RateTrial | None) -> str:
    if trial is None:
        return ABSENT
    tau = "" if trial.tau is None else f", tau {format_setting(trial.tau)}"
    return f"{format_exponent(trial.client_lr)}, {format_exponent(trial.server_lr)}{tau}"
