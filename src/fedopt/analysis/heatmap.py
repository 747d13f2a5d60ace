"""The numbers of the learning-rate heat maps, and how easy a method is to tune.

A trial is one configuration with its seeds. Trials that differ only in the client's rate, the server's rate
and tau are one method's grid; a heat map is the part of it with one tau, as in the paper's figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from fedopt.analysis.seeds import Group, groups
from fedopt.analysis.summary import final, final_loss, is_higher_better, is_trained, state_of, worth_counting
from fedopt.formatting import is_fraction, setting_text
from fedopt.runs.records import RunRecord, flatten

NEAR_FRACTION = 0.01  # "near the best" of a metric in per cent: one percentage point
NEAR_RELATIVE = 0.1  # and of any other metric: a tenth of the best
ROUNDING = 1e-9  # a trial at exactly the stated distance is within it, whatever the last bit says

Axes = tuple[float, float, float]


class Trial(NamedTuple):
    """One cell: the numbers are means over the seeds that ended well, None where there are none."""

    client_lr: float
    server_lr: float
    tau: float | None
    group: Group
    state: str  # "" when done, else diverged, failed, pruned or unfinished
    value: float | None  # what is compared: the task's metric or another measure
    train_loss: float | None

    @property
    def done(self) -> bool:
        return not self.state


class Grid(NamedTuple):
    """All trials of one method, by tau, client and server rate."""

    method: str  # the algorithm, and the settings that tell two grids of it apart
    higher_is_better: bool
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The best by what is compared, among the trials that are done."""
        known = [trial for trial in self.trials if trial.done and trial.value is not None]
        sign = -1.0 if self.higher_is_better else 1.0
        return min(known, key=lambda trial: sign * (trial.value or 0.0), default=None)

    @property
    def chosen(self) -> Trial | None:
        """What the paper's rule selects: the smallest mean train loss over the last 100 rounds."""
        known = [trial for trial in self.trials if trial.done and trial.train_loss is not None]
        return min(known, key=lambda trial: trial.train_loss or 0.0, default=None)

    @property
    def taus(self) -> list[float | None]:
        """The values of tau, ascending; [None] for a method that has none."""
        return sorted({trial.tau for trial in self.trials}, key=lambda tau: tau or 0.0)

    def at(self, tau: float | None) -> Grid:
        """The part of the grid with one tau."""
        return self._replace(trials=tuple(trial for trial in self.trials if _same(trial.tau, tau)))


class HeatMap(NamedTuple):
    """One method's trials with one tau, and the two axes, both ascending."""

    grid: Grid
    tau: float | None
    client_rates: tuple[float, ...]
    server_rates: tuple[float, ...]
    cells: dict[tuple[float, float], Trial]  # by client and server rate; absent where no trial was made

    @property
    def method(self) -> str:
        return self.grid.method


class Distance(NamedTuple):
    """How far from the best still counts as near it."""

    size: float
    relative: bool

    def reach(self, best: float, higher_is_better: bool) -> float:
        """The worst value that is still near `best`."""
        away = self.size * (abs(best) if self.relative else 1.0)
        return best - away if higher_is_better else best + away

    @property
    def text(self) -> str:
        """In words, for wherever the number is shown.

        >>> Distance(0.01, False).text, Distance(0.1, True).text
        ('1 percentage point', '10 %')
        """
        size = f"{self.size * 100:g}"
        return f"{size} %" if self.relative else f"{size} percentage point{'' if size == '1' else 's'}"


class Ease(NamedTuple):
    """How easy a method is to tune: the share of its grid that comes near its best."""

    share: float | None  # None where no trial is done
    within: int
    total: int
    distance: Distance


def distance_of(metric: str) -> Distance:
    """The distance for `metric`: one percentage point for accuracies and recalls, 10 % for an MSE."""
    return Distance(NEAR_FRACTION, False) if is_fraction(metric) else Distance(NEAR_RELATIVE, True)


def ease(grid: Grid, distance: Distance) -> Ease:
    """The share of the grid's trials whose final value is within `distance` of the grid's best.

    A trial that diverged, failed or was pruned counts in the total and is not within: a tuner has paid for
    it. One that has not ended is not counted.
    """
    ended = [trial for trial in grid.trials if trial.state != "unfinished"]
    return ease_of([t.value if t.done else None for t in ended], grid.higher_is_better, distance)


def ease_of(values: Sequence[float | None], higher_is_better: bool, distance: Distance) -> Ease:
    """The share of `values`, one for each trial that has ended, within `distance` of the best of them."""
    known = [value for value in values if value is not None]
    if not known:
        return Ease(None, 0, len(values), distance)
    best = max(known) if higher_is_better else min(known)
    edge, slack = distance.reach(best, higher_is_better), ROUNDING * abs(best)
    near = [v >= edge - slack if higher_is_better else v <= edge + slack for v in known]
    return Ease(sum(near) / len(values), sum(near), len(values), distance)


def grids(records: Sequence[RunRecord], measure: str | None = None) -> list[Grid]:
    """The grids among `records`, in order of first appearance; a method with one trial is not a grid.

    Trials are compared by `measure`, the task's metric by default. A configuration that was run twice is
    one trial, the longer one.
    """
    measure = measure or (records[0].metric if records else "")
    found: dict[str, dict[Axes, Trial]] = {}
    for group in groups(records):
        trial = _trial(group, measure)
        if trial is not None:
            trials = found.setdefault(_method_key(group.records[0]), {})
            other = trials.get(_axes(trial))
            if other is None or _length(other) < _length(trial):
                trials[_axes(trial)] = trial
    several = [list(trials.values()) for trials in found.values() if len(trials) > 1]
    return [
        Grid(
            name,
            is_higher_better(trials[0].group.records[0], measure),
            tuple(sorted(trials, key=_axes)),
        )
        for name, trials in zip(_method_names(several), several, strict=True)
    ]


def maps(records: Sequence[RunRecord], tau: float | None = None) -> list[HeatMap]:
    """The heat maps of `records`: one for each method and tau with two or more values of both rates.

    `tau` keeps only the maps with that value (the paper's figures have 1e-3) and those of methods that have
    none.
    """
    found = [heat_map(grid, value) for grid in grids(records) for value in grid.taus]
    kept = [m for m in found if tau is None or m.tau is None or _same(m.tau, tau)]
    return [m for m in kept if len(m.client_rates) > 1 and len(m.server_rates) > 1]


def heat_map(grid: Grid, tau: float | None) -> HeatMap:
    """The part of `grid` with one tau, on its axes."""
    part = grid.at(tau)
    clients = sorted({trial.client_lr for trial in part.trials})
    servers = sorted({trial.server_lr for trial in part.trials})
    cells = {(trial.client_lr, trial.server_lr): trial for trial in part.trials}
    return HeatMap(part, tau, tuple(clients), tuple(servers), cells)


def exponent(rate: float) -> str:
    """The decimal logarithm of a rate, as the axes show it.

    >>> exponent(0.1), exponent(10**-1.5), exponent(0.02), exponent(1.0)
    ('−1', '−1.5', '−1.7', '0')
    """
    return f"{round(math.log10(rate), 2) + 0.0:g}".replace("-", "−")


def _trial(group: Group, measure: str) -> Trial | None:
    settings = flatten(group.records[0].config)
    rates = [settings.get(key) for key in ("client.lr", "server.lr")]
    if not all(isinstance(rate, int | float) and rate > 0 for rate in rates):
        return None  # a run of somebody's own that has no such rates
    client, server = (_rounded(rate) for rate in rates)
    tau = settings.get("server.tau")
    counted = [r for r in worth_counting(group.records) if is_trained(r, r.rounds)]
    values = [v for record in counted if (v := final(record, measure)) is not None]
    losses = [v for record in counted if (v := final_loss(record)) is not None]
    return Trial(
        client_lr=client,
        server_lr=server,
        tau=_rounded(tau) if isinstance(tau, int | float) else None,
        group=group,
        state=state_of(group.records),
        value=fmean(values) if values else None,
        train_loss=fmean(losses) if losses else None,
    )


def _rounded(rate: object) -> float:
    """Ten digits, so that 10^-0.5 written by a grid and by a user meet on one axis."""
    return float(f"{rate:.9e}")


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6)


def _axes(trial: Trial) -> Axes:
    return (trial.tau or 0.0, trial.client_lr, trial.server_lr)


def _length(trial: Trial) -> int:
    return max(record.rounds for record in trial.group.records)


def _method_settings(record: RunRecord) -> dict[str, object]:
    """What all trials of a grid share."""
    settings = flatten(record.config)
    tau, start = settings.pop("server.tau", None), settings.get("server.initial_accumulator")
    if tau is not None and start is not None and math.isclose(start, tau * tau, rel_tol=1e-6):
        del settings["server.initial_accumulator"]  # v_{-1} = tau^2 follows tau
    for key in ("client.lr", "server.lr", "seed", "rounds"):
        settings.pop(key, None)
    return settings


def _method_key(record: RunRecord) -> str:
    return json.dumps([record.label, record.data, _method_settings(record)], sort_keys=True, default=str)


def _method_names(several: Sequence[Sequence[Trial]]) -> list[str]:
    """The algorithm of each grid, with the settings in which two grids of one algorithm differ."""
    firsts = [trials[0].group.records[0] for trials in several]
    names = []
    for record in firsts:
        same = [_method_settings(r) | {"data": r.data} for r in firsts if r.label == record.label]
        own = _method_settings(record) | {"data": record.data}
        keys = [key for key in own if any(other.get(key) != own[key] for other in same)]
        suffix = ", ".join(f"{key} {setting_text(own[key])}" for key in keys)
        names.append(f"{record.label} ({suffix})" if suffix else record.label)
    return names
