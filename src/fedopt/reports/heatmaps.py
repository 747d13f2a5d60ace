"""The heat maps of the report as plain data.

They are HTML tables instead of images: cells are reachable by keyboard, readable by screen readers and
visible without a script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedopt.formatting import ABSENT, Unit, format_exponent, format_setting
from fedopt.intervals import Interval
from fedopt.reports.grids import (
    EaseOfTuning,
    HeatMap,
    RateGrid,
    RateTrial,
    SweepView,
    grid_ease_of_tuning,
    metric_tolerance,
)
from fedopt.reports.sentences import mean_unit
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.runs.records import averaged_rounds

STATE_MARKS = {"diverged": "×", "failed": "!", "pruned": "‖", "unfinished": "…"}
STAR, RING = "★", "○"
BY_RULE = "selected by the paper's rule"
MAX_WIDE = 9  # columns of a map with decimals in its cells
PALETTE = "viridis"  # perceptually uniform and colour-blind safe
WIDE_SPAN = 10.0  # values that span a larger factor are placed on a logarithmic scale
EQUAL_CONTRAST = 0.179  # luminance on which black and white have the same contrast


class MetricScale(NamedTuple):
    """A linear or logarithmic scale from the worst value (0) to the best value (1)."""

    worst: float
    best: float
    log: bool

    def position(self, value: float) -> float:
        worst, best, shown = (math.log10(v) if self.log else v for v in (self.worst, self.best, value))
        return 1.0 if best == worst else min(1.0, max(0.0, (shown - worst) / (best - worst)))

    @property
    def middle(self) -> float:
        return math.sqrt(self.worst * self.best) if self.log else (self.worst + self.best) / 2


def metric_scale(values: Sequence[float], higher_is_better: bool) -> MetricScale:
    """Return one colour scale for all maps of a page, logarithmic if errors span more than a factor of ten.

    Args:
        values: the values of all maps.
        higher_is_better: their direction.

    Returns:
        The scale. Its method `position` maps a value to 0 (worst) to 1 (best).

    Examples:
        >>> metric_scale([0.25, 0.75], higher_is_better=True).position(0.5)
        0.5
    """
    low, high = min(values, default=0.0), max(values, default=1.0)
    log = not higher_is_better and low > 0 and high > WIDE_SPAN * low
    return MetricScale(low, high, log) if higher_is_better else MetricScale(high, low, log)


class MapCell(NamedTuple):
    """A cell of a heat map. `trial` is the row of its trial in the table of the card, None without one."""

    label: str
    text: str = ""
    trial: int | None = None
    kind: str = "cell"  # CSS classes
    colours: str = ""  # CSS: background and text on the scale of all maps, and on that of its own map
    marks: str = ""
    is_entry: bool = False  # receives the focus of the map


class MapTable(NamedTuple):
    """A heat map: server rates in descending order from top to bottom, client rates from left to right."""

    tau: str | None
    rows: list[tuple[str, list[MapCell]]]  # server rate and cells
    client_rates: list[str]
    edges: dict[str, str]  # sides of the map at which the selected trial lies, with a description


class MethodCard(NamedTuple):
    """The maps of one method, one per tau, its trials as a table, and how easy it is to tune."""

    method: str
    maps: list[MapTable]
    selected: int  # index of the map with the best trial
    trials: list[dict[str, str]]
    best: str
    best_rates: str
    choice: str  # of the paper's rule
    ease: EaseOfTuning

    @property
    def heads(self) -> list[str]:
        """The columns of the table of trials: the facts that at least one trial has."""
        return [name for name in self.trials[0] if any(trial[name] for trial in self.trials)]


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
    grids: list[RateGrid]

    @property
    def eases(self) -> list[EaseOfTuning]:
        return [card.ease for card in self.cards]


def heat_maps(sweep: SweepView) -> HeatMaps | None:
    """Return the section on learning rates, or None if no grid of rates was tried."""
    metric, grids = sweep.metric, [grid for grid in sweep.grids if grid.heat_maps()]
    if not grids:
        return None
    unit, trials = mean_unit(metric), [trial for grid in grids for trial in grid.trials]
    results = [trial.result for trial in trials if trial.result is not None]
    scale = metric_scale(results, grids[0].higher_is_better)
    states = {trial.state for trial in trials}
    marks = {mark: state for state, mark in STATE_MARKS.items() if state in states}
    if any(not trial.state and trial.value is None for trial in trials):
        marks["?"] = "no finite result"
    eases = grid_ease_of_tuning(grids, metric)
    return HeatMaps(
        unit=unit,
        scale=scale if results else None,
        scale_colours=[cell_colours(step / 10)[0] for step in range(11)],
        marks=marks,
        rounds=sorted({r.rounds for trial in trials if not trial.state for r in trial.group.records}),
        averaged=averaged_rounds({r.rounds for trial in trials for r in trial.group.counted}),
        selects_metric=sweep.select == metric,
        selects_train_loss=sweep.select == TRAIN_LOSS,
        tolerance=metric_tolerance(metric).text,
        cards=[_card(*pair, scale, unit, sweep.select) for pair in zip(grids, eases, strict=True)],
        grids=grids,
    )


def _card(
    grid: RateGrid, ease: EaseOfTuning, scale: MetricScale, unit: Unit, selection: str | None
) -> MethodCard:
    maps, best, choice = grid.heat_maps(), grid.best, grid.selected_by_papers_rule
    taus = [heat_map.tau for heat_map in maps]
    chosen = _value_text(choice, unit)
    return MethodCard(
        method=grid.method,
        maps=[_map_table(grid, heat_map, scale, unit, selection) for heat_map in maps],
        selected=taus.index(best.tau) if best is not None and best.tau in taus else 0,
        trials=[_trial_facts(trial, unit, _marks(grid, trial)) for trial in grid.trials],
        best=_value_text(best, unit),
        best_rates=_rates_text(best),
        choice=chosen if chosen == ABSENT else f"{chosen} at {_rates_text(choice)}",
        ease=ease,
    )


def _map_table(
    grid: RateGrid, heat_map: HeatMap, scale: MetricScale, unit: Unit, selection: str | None
) -> MapTable:
    """Return one map of a grid. Marks show the best and the selected trial of the whole grid."""
    entry = heat_map.grid.best or next(iter(heat_map.cells.values()))
    results = [trial.result for trial in heat_map.cells.values() if trial.result is not None]
    scales = (scale, metric_scale(results, grid.higher_is_better))
    digits = 0 if len(heat_map.client_rates) > MAX_WIDE and unit.suffix else min(unit.digits, 3)
    rows = []
    for server in reversed(heat_map.server_rates):
        cells = []
        for client in heat_map.client_rates:
            trial = heat_map.cells.get((client, server))
            label = f"client rate {format_setting(client)}, server rate {format_setting(server)}"
            if trial is None:
                cells.append(MapCell(f"{label}: no trial", kind="cell blank"))
            else:
                cell = _trial_cell(label, grid, trial, scales, unit, digits)
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
    rates: str,
    grid: RateGrid,
    trial: RateTrial,
    scales: tuple[MetricScale, MetricScale],
    unit: Unit,
    digits: int,
) -> MapCell:
    marks = _marks(grid, trial)
    label = f"{rates}: {trial.state or 'done'}, {unit.name} {_value_text(trial, unit)}"
    label += ", best" * (STAR in marks) + f", {BY_RULE}" * (RING in marks)
    kind = "cell marked" if marks else "cell"
    text, colours = STATE_MARKS.get(trial.state, "?"), ""
    if trial.result is None:
        kind += " ended"
    else:
        text = f"{trial.result * unit.factor:.{digits}f}"
        found = [colour for scale in scales for colour in cell_colours(scale.position(trial.result))]
        colours = ";".join(f"--{name}:{colour}" for name, colour in zip("abcd", found, strict=True))
    return MapCell(label, text, grid.trials.index(trial), kind, colours, marks)


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


def _value_text(trial: RateTrial | None, unit: Unit) -> str:
    return _interval_text(trial.value_interval if trial else None, unit)


def _interval_text(interval: Interval | None, unit: Unit) -> str:
    return ABSENT if interval is None else unit.format(interval.mean)


def _rates_text(trial: RateTrial | None) -> str:
    if trial is None:
        return ABSENT
    tau = "" if trial.tau is None else f", tau {format_setting(trial.tau)}"
    return f"{format_exponent(trial.client_lr)}, {format_exponent(trial.server_lr)}{tau}"


def cell_colours(position: float) -> tuple[str, str]:
    """Return the colours of a heat map's cell.

    Args:
        position: place on the colour scale, from 0 (worst) to 1 (best).

    Returns:
        The background, and black or white for the text on it.

    Examples:
        >>> cell_colours(1.0)
        ('#fde725', '#000')
    """
    import matplotlib
    from matplotlib.colors import to_hex

    red, green, blue, _ = matplotlib.colormaps[PALETTE](float(position))
    return to_hex((red, green, blue)), text_colour(red, green, blue)


def text_colour(red: float, green: float, blue: float) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) to a colour.

    Args:
        red: the components of the colour, from 0 to 1.
        green: see `red`.
        blue: see `red`.

    Returns:
        The colour of the text.

    Examples:
        >>> text_colour(0.9, 0.9, 0.2), text_colour(0.2, 0.0, 0.3)
        ('#000', '#fff')
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if luminance > EQUAL_CONTRAST else "#fff"
