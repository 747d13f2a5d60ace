"""The heat maps of the report as plain data.

They are HTML tables instead of images: cells are reachable by keyboard, readable by screen readers and
visible without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedopt.analysis.heatmap import (
    HeatMap,
    MetricScale,
    NearBest,
    RateGrid,
    RateTrial,
    find_grids,
    metric_scale,
    metric_tolerance,
)
from fedopt.analysis.run_numbers import TRAIN_LOSS
from fedopt.formatting import ABSENT, Unit, format_exponent, format_setting, metric_unit
from fedopt.reporting.colours import cell_colours
from fedopt.runs.discover import selection_of
from fedopt.runs.records import RunRecord

STATE_MARKS = {"diverged": "×", "failed": "!", "pruned": "‖", "unfinished": "…"}
STAR, RING = "★", "○"


class MapCell(NamedTuple):
    """A cell of a heat map; `facts` describe its trial."""

    text: str
    label: str
    facts: dict[str, str]
    kind: str  # CSS classes
    colours: tuple[str, str] | None = None  # background and text
    marks: str = ""
    is_entry: bool = False  # receives the focus of the map


class MapTable(NamedTuple):
    """A heat map: server rates in descending order from top to bottom, client rates from left to right."""

    tau: str | None
    rows: list[tuple[str, list[MapCell]]]  # server rate and cells
    client_rates: list[str]
    near_best: NearBest


class MethodCard(NamedTuple):
    """The maps of one method, one per tau, and its trials as a table."""

    method: str
    maps: list[MapTable]
    selected: int  # index of the map with the best trial
    has_best: bool
    trials: list[dict[str, str]]


class TuningRow(NamedTuple):
    """How easy a method is to tune."""

    method: str
    best: str
    best_rates: str
    papers_choice: str
    near_best: NearBest
    near_best_with_tau: NearBest | None  # among the trials with the best tau, if there are several


class HeatMaps(NamedTuple):
    """The section on learning rates."""

    unit: Unit
    scale: MetricScale | None  # None if no trial has a result
    scale_colours: list[str]
    marks: dict[str, str]  # of the states that occur
    rounds: list[int]  # different lengths of the trials that are done
    selects_metric: bool  # the sweep selected by the metric of the maps
    selects_train_loss: bool
    tolerance: str
    cards: list[MethodCard]
    tuning: list[TuningRow]


def heat_maps(records: Sequence[RunRecord]) -> HeatMaps | None:
    """Return the section on learning rates, or None if no grid of rates was tried."""
    selection = selection_of(records)
    metric = _shown_metric(records, selection)
    grids = [grid for grid in find_grids(records, metric) if grid.heat_maps()]
    if not grids:
        return None
    unit, trials = metric_unit(metric), [trial for grid in grids for trial in grid.trials]
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
        selects_metric=selection == metric,
        selects_train_loss=selection == TRAIN_LOSS,
        tolerance=metric_tolerance(metric).text,
        cards=[_method_card(grid, scale, unit, metric) for grid in grids],
        tuning=[_tuning_row(grid, unit, metric) for grid in grids],
    )


def _shown_metric(records: Sequence[RunRecord], selection: str | None) -> str:
    """Return the selection criterion of the sweep if it is a test metric, else the task's metric."""
    evaluated = any(selection in line for record in records for line in record.test[-1:])
    return selection if selection and selection != TRAIN_LOSS and evaluated else records[0].metric


def _method_card(grid: RateGrid, scale: MetricScale, unit: Unit, metric: str) -> MethodCard:
    maps, best = grid.heat_maps(), grid.best
    taus = [heat_map.tau for heat_map in maps]
    return MethodCard(
        method=grid.method,
        maps=[_map_table(heat_map, scale, unit, metric) for heat_map in maps],
        selected=taus.index(best.tau) if best is not None and best.tau in taus else 0,
        has_best=best is not None,
        trials=[_trial_facts(trial, unit) for trial in grid.trials],
    )


def _map_table(heat_map: HeatMap, scale: MetricScale, unit: Unit, metric: str) -> MapTable:
    grid = heat_map.grid
    best, choice = grid.best, grid.selected_by_papers_rule
    entry = best or next(iter(heat_map.cells.values()))
    rows = []
    for server in reversed(heat_map.server_rates):
        cells = []
        for client in heat_map.client_rates:
            trial = heat_map.cells.get((client, server))
            label = f"client rate {format_setting(client)}, server rate {format_setting(server)}"
            if trial is None:
                facts = _rate_facts(client, server) | {"trial": "none"}
                cells.append(MapCell("", f"{label}: no trial", facts, "cell blank"))
            else:
                marks = STAR * (trial is best) + RING * (trial is choice)
                cell = _trial_cell(trial, label, scale, unit, marks)
                cells.append(cell._replace(is_entry=trial is entry))
        rows.append((format_exponent(server), cells))
    return MapTable(
        tau=None if heat_map.tau is None else format_setting(heat_map.tau),
        rows=rows,
        client_rates=[format_exponent(client) for client in heat_map.client_rates],
        near_best=grid.near_best(metric_tolerance(metric)),
    )


def _trial_cell(trial: RateTrial, label: str, scale: MetricScale, unit: Unit, marks: str) -> MapCell:
    facts = _trial_facts(trial, unit, marks)
    label = f"{label}: {facts['status']}, {unit.name} {facts[unit.name]}"
    label += ", best" * (STAR in marks) + ", the paper's choice" * (RING in marks)
    kind = "cell marked" if marks else "cell"
    if trial.result is None:
        return MapCell(STATE_MARKS.get(trial.state, "?"), label, facts, f"{kind} ended", marks=marks)
    text = f"{trial.result * unit.factor:.{min(unit.digits, 3)}f}"
    return MapCell(text, label, facts, kind, cell_colours(scale.position(trial.result)), marks)


def _trial_facts(trial: RateTrial, unit: Unit, marks: str = "") -> dict[str, str]:
    """Return the facts of a trial by name."""
    records = trial.group.records
    marked = [f"best {unit.name}"] * (STAR in marks) + ["the paper's choice"] * (RING in marks)
    facts = {
        **_rate_facts(trial.client_lr, trial.server_lr),
        "tau": "" if trial.tau is None else format_setting(trial.tau),
        unit.name: _value_text(trial, unit),
        "train loss": ABSENT if trial.train_loss is None else f"{trial.train_loss:.4g}",
        "status": f"{trial.state or 'done'}, {max(record.rounds for record in records)} rounds",
        "seeds": str(len(records)) if len(records) > 1 else "",
        "marked as": " and ".join(marked),
        "run": ", ".join(str(record.path) for record in records),
    }
    return {name: text for name, text in facts.items() if text}


def _rate_facts(client: float, server: float) -> dict[str, str]:
    rates = {"client rate": client, "server rate": server}
    return {name: f"{format_setting(rate)} (10^{format_exponent(rate)})" for name, rate in rates.items()}


def _tuning_row(grid: RateGrid, unit: Unit, metric: str) -> TuningRow:
    tolerance, best, choice = metric_tolerance(metric), grid.best, grid.selected_by_papers_rule
    best_tau = grid.select_tau(best.tau) if best is not None and len(grid.taus) > 1 else None
    choice_text = _value_text(choice, unit)
    return TuningRow(
        method=grid.method,
        best=_value_text(best, unit),
        best_rates=_rates_text(best),
        papers_choice=choice_text if choice_text == ABSENT else f"{choice_text} at {_rates_text(choice)}",
        near_best=grid.near_best(tolerance),
        near_best_with_tau=best_tau.near_best(tolerance) if best_tau else None,
    )


def _value_text(trial: RateTrial | None, unit: Unit) -> str:
    return ABSENT if trial is None or trial.value is None else unit.format(trial.value)


def _rates_text(trial: RateTrial | None) -> str:
    if trial is None:
        return ABSENT
    tau = "" if trial.tau is None else f", tau {format_setting(trial.tau)}"
    return f"{format_exponent(trial.client_lr)}, {format_exponent(trial.server_lr)}{tau}"
