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
from fedopt.analysis.summary import TRAIN_LOSS
from fedopt.formatting import ABSENT, Unit, format_exponent, format_setting, metric_unit
from fedopt.report.colours import cell_colours
from fedopt.runs.discover import selection_of
from fedopt.runs.records import LAST_ROUNDS, RunRecord

DENSE = 9  # client rates; small screens hide the numbers of wider maps
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
    """A heat map: server rates from top to bottom in descending order, client rates from left to right."""

    tau: str | None
    label: str
    rows: list[tuple[str, list[MapCell]]]  # server rate and cells
    client_rates: list[str]
    dense: bool
    note: str


class MethodCard(NamedTuple):
    """The maps of one method, one per tau, and its trials as a table."""

    method: str
    maps: list[MapTable]
    selected: int  # index of the map with the best trial
    has_best: bool
    trial_heads: list[str]
    trials: list[list[str]]


class ColourBar(NamedTuple):
    caption: str
    colours: list[str]
    ticks: list[str]


class TuningRow(NamedTuple):
    """How easy a method is to tune."""

    method: str
    cells: list[str]
    share: float
    best_tau: str


class TuningTable(NamedTuple):
    note: str
    heads: list[str]
    rows: list[TuningRow]
    has_taus: bool


class HeatMaps(NamedTuple):
    note: str
    colour_bar: ColourBar | None
    cards: list[MethodCard]
    tuning: TuningTable


def heat_maps(records: Sequence[RunRecord]) -> HeatMaps | None:
    """Return the section on learning rates, or None if no grid of rates was tried."""
    selection = selection_of(records)
    metric = _shown_metric(records, selection)
    grids = [grid for grid in find_grids(records, metric) if grid.heat_maps()]
    if not grids:
        return None
    unit = metric_unit(metric)
    results = [trial.result for grid in grids for trial in grid.trials if trial.result is not None]
    scale = metric_scale(results, grids[0].higher_is_better)
    return HeatMaps(
        _section_note(grids, unit, metric, selection),
        _colour_bar(scale, unit) if results else None,
        [_method_card(grid, scale, unit, metric) for grid in grids],
        _tuning_table(grids, unit, metric),
    )


def _shown_metric(records: Sequence[RunRecord], selection: str | None) -> str:
    """Return the selection criterion of the sweep if it is a test metric, else the task's metric."""
    evaluated = any(selection in line for record in records for line in record.test[-1:])
    return selection if selection and selection != TRAIN_LOSS and evaluated else records[0].metric


def _section_note(grids: Sequence[RateGrid], unit: Unit, metric: str, selection: str | None) -> str:
    criterion = ", the selection criterion of this sweep"
    trials = [trial for grid in grids for trial in grid.trials]
    states = {trial.state for trial in trials}
    legend = [f"{mark} {state}" for state, mark in STATE_MARKS.items() if state in states]
    legend += ["? no finite result"] if any(not t.state and t.value is None for t in trials) else []
    done = [trial for trial in trials if not trial.state]
    rounds = sorted({record.rounds for trial in done for record in trial.group.records})
    lengths = f"Trials ran for {rounds[0]} to {rounds[-1]} rounds. " if len(rounds) > 1 else ""
    return (
        f"Each cell is one trial. Its colour shows the test {unit.name}: the mean over the last "
        f"{LAST_ROUNDS} rounds, or over all rounds of a shorter run. Rates are in log10. "
        f"All maps share a colour scale. {STAR} best {unit.name}{criterion if selection == metric else ''}. "
        f"{RING} the paper's choice: the smallest train loss{criterion if selection == TRAIN_LOSS else ''}. "
        f"{'; '.join([*legend, 'blank: no trial']).capitalize()}. {lengths}"
        "Point at a cell, or move to it with Tab and the arrow keys, to show its trial."
    )


def _colour_bar(scale: MetricScale, unit: Unit) -> ColourBar:
    log = ", log scale" if scale.log else ""
    return ColourBar(
        f"test {unit.name}{log}; brighter is better",
        [cell_colours(step / 10)[0] for step in range(11)],
        [unit.format(value) for value in (scale.worst, scale.middle, scale.best)],
    )


def _method_card(grid: RateGrid, scale: MetricScale, unit: Unit, metric: str) -> MethodCard:
    maps, best = grid.heat_maps(), grid.best
    taus = [heat_map.tau for heat_map in maps]
    heads = ["client rate", "server rate", "tau", unit.name, "train loss", "status", "run"]
    if grid.taus == [None]:
        heads.remove("tau")
    facts = [_trial_facts(trial, unit) for trial in grid.trials]
    return MethodCard(
        method=grid.method,
        maps=[_map_table(heat_map, scale, unit, metric) for heat_map in maps],
        selected=taus.index(best.tau) if best is not None and best.tau in taus else 0,
        has_best=best is not None,
        trial_heads=heads,
        trials=[[trial.get(head, ABSENT) for head in heads] for trial in facts],
    )


def _map_table(heat_map: HeatMap, scale: MetricScale, unit: Unit, metric: str) -> MapTable:
    grid = heat_map.grid
    best, choice = grid.best, grid.papers_choice
    entry = best or next(iter(heat_map.cells.values()))
    rows = []
    for server in reversed(heat_map.server_rates):
        cells = []
        for client in heat_map.client_rates:
            trial = heat_map.cells.get((client, server))
            if trial is None:
                cells.append(_blank_cell(client, server))
            else:
                marks = STAR * (trial is best) + RING * (trial is choice)
                cells.append(_trial_cell(trial, scale, unit, marks)._replace(is_entry=trial is entry))
        rows.append((format_exponent(server), cells))
    tau = None if heat_map.tau is None else format_setting(heat_map.tau)
    name = grid.method if tau is None else f"{grid.method}, tau {tau}"
    return MapTable(
        tau=tau,
        label=f"{name}: test {unit.name} by client rate (columns) and server rate (rows), in log10",
        rows=rows,
        client_rates=[format_exponent(client) for client in heat_map.client_rates],
        dense=len(heat_map.client_rates) > DENSE,
        note=_describe_near_best(grid.near_best(metric_tolerance(metric))),
    )


def _describe_near_best(near: NearBest) -> str:
    if near.share is None:
        return f"None of {near.total} trials is done."
    share = f"{near.within} of {near.total} trials ({near.share * 100:.0f} %)"
    return f"{share} within {near.tolerance.text} of the best of this map."


def _blank_cell(client: float, server: float) -> MapCell:
    facts = {"client rate": _rate_text(client), "server rate": _rate_text(server), "trial": "none"}
    return MapCell("", f"{_rates_label(client, server)}: no trial", facts, "cell blank")


def _trial_cell(trial: RateTrial, scale: MetricScale, unit: Unit, marks: str) -> MapCell:
    facts = _trial_facts(trial, unit, marks)
    label = f"{_rates_label(trial.client_lr, trial.server_lr)}: {facts['status']}, "
    label += f"{unit.name} {facts[unit.name]}"
    label += ", best" if STAR in marks else ""
    label += ", the paper's choice" if RING in marks else ""
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
        "client rate": _rate_text(trial.client_lr),
        "server rate": _rate_text(trial.server_lr),
        "tau": "" if trial.tau is None else format_setting(trial.tau),
        unit.name: ABSENT if trial.value is None else unit.format(trial.value),
        "train loss": ABSENT if trial.train_loss is None else f"{trial.train_loss:.4g}",
        "status": f"{trial.state or 'done'}, {max(record.rounds for record in records)} rounds",
        "seeds": str(len(records)) if len(records) > 1 else "",
        "marked as": " and ".join(marked),
        "run": ", ".join(str(record.path) for record in records),
    }
    return {name: text for name, text in facts.items() if text}


def _rates_label(client: float, server: float) -> str:
    return f"client rate {format_setting(client)}, server rate {format_setting(server)}"


def _rate_text(rate: float) -> str:
    return f"{format_setting(rate)} (10^{format_exponent(rate)})"


def _tuning_table(grids: Sequence[RateGrid], unit: Unit, metric: str) -> TuningTable:
    """Return the share of each method's trials that are near its best."""
    tolerance = metric_tolerance(metric)
    has_taus = any(len(grid.taus) > 1 for grid in grids)
    heads = ["method", f"best {unit.name}", "with rates", "the paper's choice", "near its best"]
    heads += ["share of the grid", *(["with the best tau only"] if has_taus else [])]
    rows = []
    for grid in grids:
        near, best, choice = grid.near_best(tolerance), grid.best, grid.papers_choice
        at_best_tau = ABSENT
        if best is not None and len(grid.taus) > 1:
            part = grid.select_tau(best.tau).near_best(tolerance)
            at_best_tau = f"{part.within} of {part.total}"
        cells = [
            _value_text(best, unit),
            _point_text(best),
            ABSENT
            if choice is None or choice.value is None
            else f"{_value_text(choice, unit)} at {_point_text(choice)}",
            f"{near.within} of {near.total}",
        ]
        rows.append(TuningRow(grid.method, cells, near.share or 0.0, at_best_tau))
    note = (
        f"The share of a method's trials whose {unit.name} is within {tolerance.text} of that method's best. "
        "Trials that diverged, failed or were pruned count as not within. Unfinished trials do not count. "
        "Rates: log10 of the client and server rate."
    )
    return TuningTable(note, heads, rows, has_taus)


def _value_text(trial: RateTrial | None, unit: Unit) -> str:
    return ABSENT if trial is None or trial.value is None else unit.format(trial.value)


def _point_text(trial: RateTrial | None) -> str:
    if trial is None:
        return ABSENT
    tau = "" if trial.tau is None else f", tau {format_setting(trial.tau)}"
    return f"{format_exponent(trial.client_lr)}, {format_exponent(trial.server_lr)}{tau}"
