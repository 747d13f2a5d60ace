"""Grids of learning rates: their best and selected trials, colour scales, and how easy a method is to tune.

Trials that differ only in client rate, server rate and tau form the grid of one method. A heat map is the
part of a grid with one value of tau, as in the paper's figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedopt.formatting import is_fraction
from fedopt.intervals import Interval, confidence_interval
from fedopt.reports.seeds import SeedGroup, configuration_key, configuration_labels, group_seeds
from fedopt.reports.summary import (
    TRAIN_LOSS,
    final_measure,
    has_finite_rounds,
    is_higher_better,
    is_trained,
)
from fedopt.runs.discover import selection_of
from fedopt.runs.records import RunRecord, flatten, last_evaluation

REFERENCE = "fedavg"  # the algorithm that adaptive methods have to beat
ROUNDING = 1e-9  # relative tolerance for a value exactly at the limit
MAX_RATES = 30  # values on an axis; random trials with more are not drawn as a grid
MIN_FILLED = 0.25  # share of the cells of a map that have a trial


class RateTrial(NamedTuple):
    """One cell: a configuration with its rates, and means over its counted seeds."""

    client_lr: float
    server_lr: float
    tau: float | None
    group: SeedGroup
    value_interval: Interval | None  # of the compared measure
    train_loss_interval: Interval | None
    last_interval: Interval | None  # of the compared measure at the last evaluation

    @property
    def value(self) -> float | None:
        """The compared measure: the mean over the last 100 rounds and over seeds."""
        return None if self.value_interval is None else self.value_interval.mean

    @property
    def train_loss(self) -> float | None:
        return None if self.train_loss_interval is None else self.train_loss_interval.mean

    @property
    def point(self) -> str:
        """The rates in the notation of grids: client_lr=-1.5 server_lr=0 tau=-3."""
        rates = {"client_lr": self.client_lr, "server_lr": self.server_lr, "tau": self.tau}
        return " ".join(f"{axis}={log10(rate):g}" for axis, rate in rates.items() if rate is not None)

    @property
    def state(self) -> str:
        """Diverged, failed, pruned or unfinished; "" if the trial is done."""
        return self.group.state

    @property
    def result(self) -> float | None:
        """The value of a trial that is done, else None."""
        return None if self.state else self.value


class RateGrid(NamedTuple):
    """All trials of one method, sorted by tau, client rate and server rate."""

    method: str  # the algorithm, with the settings that distinguish two grids of it
    higher_is_better: bool
    trials: tuple[RateTrial, ...]

    @property
    def best(self) -> RateTrial | None:
        """The trial with the best value."""
        results = [(trial.result, trial) for trial in self.trials if trial.result is not None]
        sign = -1.0 if self.higher_is_better else 1.0
        return min(results, key=lambda pair: sign * pair[0], default=(None, None))[1]

    @property
    def selected_by_papers_rule(self) -> RateTrial | None:
        """The trial that the paper's rule selects: the smallest mean train loss over the last 100 rounds."""
        losses = [(t.train_loss, t) for t in self.trials if not t.state and t.train_loss is not None]
        return min(losses, key=lambda pair: pair[0], default=(None, None))[1]

    def selected_by(self, criterion: str | None) -> RateTrial | None:
        """Return the trial that a sweep with this criterion selects: by the train loss, or by the metric."""
        return self.selected_by_papers_rule if criterion == TRAIN_LOSS else self.best

    def edges(self, trial: RateTrial) -> list[str]:
        """Return the axes of the grid on which a trial has the smallest or largest of several values."""
        return [
            axis
            for axis in ("client_lr", "server_lr", "tau")
            if len(values := {getattr(t, axis) for t in self.trials if getattr(t, axis) is not None}) > 1
            and getattr(trial, axis) in (min(values), max(values))
        ]

    @property
    def taus(self) -> list[float | None]:
        """The values of tau in ascending order; [None] for a method without tau."""
        return sorted({trial.tau for trial in self.trials}, key=lambda tau: tau or 0.0)

    def select_tau(self, tau: float | None) -> RateGrid:
        return self._replace(trials=tuple(trial for trial in self.trials if trial.tau == tau))

    def heat_maps(self) -> list[HeatMap]:
        """Return a map for each tau with at least two values of both rates and enough trials."""
        maps = [_heat_map(self.select_tau(tau), tau) for tau in self.taus]
        return [
            m
            for m in maps
            if min(len(m.client_rates), len(m.server_rates)) > 1
            and max(len(m.client_rates), len(m.server_rates)) <= MAX_RATES
            and len(m.cells) >= MIN_FILLED * len(m.client_rates) * len(m.server_rates)
        ]


class HeatMap(NamedTuple):
    """The trials of one method with one tau, and both axes in ascending order."""

    grid: RateGrid
    tau: float | None
    client_rates: tuple[float, ...]
    server_rates: tuple[float, ...]
    cells: dict[tuple[float, float], RateTrial]  # by client and server rate


class Tolerance(NamedTuple):
    """The largest distance from the best value that counts as near."""

    size: float
    relative: bool

    def limit(self, best: float, higher_is_better: bool) -> float:
        """Return the worst value that is near `best`."""
        distance = self.size * (abs(best) if self.relative else 1.0)
        return best - distance if higher_is_better else best + distance

    @property
    def text(self) -> str:
        """The tolerance for display.

        >>> Tolerance(0.01, False).text, Tolerance(0.1, True).text
        ('1 percentage point', '10 %')
        """
        size = f"{self.size * 100:g}"
        return f"{size} %" if self.relative else f"{size} percentage point{'' if size == '1' else 's'}"


def metric_tolerance(metric: str) -> Tolerance:
    """Return the distance from the best value that counts as near.

    Args:
        metric: the name of a metric.

    Returns:
        One percentage point for accuracies and recalls, 10 % of the best for other metrics.

    Examples:
        >>> metric_tolerance("accuracy").text, metric_tolerance("mse").text
        ('1 percentage point', '10 %')
    """
    return Tolerance(0.01, relative=False) if is_fraction(metric) else Tolerance(0.1, relative=True)


def find_grids(records: Sequence[RunRecord], measure: str | None = None) -> list[RateGrid]:
    """Return the grids of two or more trials. If a configuration was run twice, the longer run counts.

    Args:
        records: runs of one task.
        measure: the metric, or `train_loss`, by which trials are compared; by default the task's metric.

    Returns:
        A grid for each method, in order of first appearance.

    Examples:
        >>> info = {"task": "so_lr", "algorithm": "fedavg", "status": "done", "metric": "accuracy"}
        >>> configs = [{"client": {"lr": rate}, "server": {"lr": 1.0}} for rate in (0.1, 1.0)]
        >>> [grid] = find_grids([RunRecord(Path(), info, config, [], []) for config in configs])
        >>> grid.method, [trial.point for trial in grid.trials]
        ('fedavg', ['client_lr=-1 server_lr=0', 'client_lr=0 server_lr=0'])
    """
    measure = measure or (records[0].metric if records else "")
    methods: dict[str, dict[tuple[float, ...], RateTrial]] = {}
    for group in group_seeds(records):
        trial = _rate_trial(group, measure)
        if trial is not None:
            trials = methods.setdefault(configuration_key(_method(group.records[0])), {})
            other = trials.get(_rates(trial))
            if other is None or _length(other) < _length(trial):
                trials[_rates(trial)] = trial
    grids = [sorted(trials.values(), key=_rates) for trials in methods.values() if len(trials) > 1]
    firsts = [trials[0].group.records[0] for trials in grids]
    names = configuration_labels([_method(record) for record in firsts])
    return [
        RateGrid(name, is_higher_better(record, measure), tuple(trials))
        for name, record, trials in zip(names, firsts, grids, strict=True)
    ]


class SweepView(NamedTuple):
    """The grids of some runs, and the sweep to which they belong."""

    grids: list[RateGrid]
    select: str | None  # the criterion of the sweep: train_loss or a metric; None without a sweep
    metric: str  # of the maps: the criterion if it is a test metric, else the task's metric

    @property
    def is_sweep(self) -> bool:
        return bool(self.grids) and self.select in (TRAIN_LOSS, self.metric)

    @property
    def selected_runs(self) -> set[Path]:
        """The runs of the trials that the rule selects, one trial per method."""
        trials = [grid.selected_by(self.select) for grid in self.grids] if self.is_sweep else []
        return {record.path for trial in trials if trial for record in trial.group.records}


def sweep_view(records: Sequence[RunRecord]) -> SweepView:
    """Find the grids among `records`, and the criterion of their sweep."""
    select = selection_of(records)
    evaluated = any(select in line for record in records for line in record.test[-1:])
    metric = select if select and select != TRAIN_LOSS and evaluated else records[0].metric
    return SweepView(find_grids(records, metric), select, metric)


def _heat_map(grid: RateGrid, tau: float | None) -> HeatMap:
    cells = {(trial.client_lr, trial.server_lr): trial for trial in grid.trials}
    client_rates, server_rates = (tuple(sorted(set(rates))) for rates in zip(*cells, strict=True))
    return HeatMap(grid, tau, client_rates, server_rates, cells)


def _rate_trial(group: SeedGroup, measure: str) -> RateTrial | None:
    """Return the trial of a configuration, or None if it has no positive rates."""
    settings = flatten(group.records[0].config)
    rates = [settings.get(key) for key in ("client.lr", "server.lr")]
    if not all(isinstance(rate, int | float) and rate > 0 for rate in rates):
        return None
    tau = settings.get("server.tau")
    counted = [record for record in group.counted if is_trained(record, record.rounds)]
    if not all(has_finite_rounds(record, record.rounds) for record in counted):
        counted = []  # such a trial must not be the best
    values, losses = (
        [v for record in counted if (v := final_measure(record, name)) is not None]
        for name in (measure, TRAIN_LOSS)
    )
    evaluations = [last_evaluation(record.test, measure).value for record in counted]
    last = [value for value in evaluations if value is not None]
    return RateTrial(
        client_lr=_rounded(rates[0]),
        server_lr=_rounded(rates[1]),
        tau=_rounded(tau) if isinstance(tau, int | float) else None,
        group=group,
        value_interval=confidence_interval(values) if values else None,
        train_loss_interval=confidence_interval(losses) if losses else None,
        last_interval=confidence_interval(last) if last else None,
    )


def log10(rate: float) -> float:
    """Return the decimal logarithm of a rate, without rounding errors of a grid in log10.

    Args:
        rate: a learning rate.

    Returns:
        The logarithm, rounded to six digits.

    Examples:
        >>> log10(0.03162277660168379), log10(1.0)
        (-1.5, 0.0)
    """
    return round(math.log10(rate), 6) + 0.0


def _rounded(rate: object) -> float:
    """Round to ten digits, so that 10^-0.5 from a grid equals 0.3162277660 from a user."""
    return float(f"{rate:.9e}")


def _rates(trial: RateTrial) -> tuple[float, ...]:
    return trial.tau or 0.0, trial.client_lr, trial.server_lr


def _length(trial: RateTrial) -> int:
    return max(record.rounds for record in trial.group.records)


def _method(record: RunRecord) -> RunRecord:
    """Return the record without the settings that vary within a grid."""
    settings = flatten(record.config)
    tau, accumulator = settings.pop("server.tau", None), settings.get("server.initial_accumulator")
    if tau is not None and accumulator is not None and math.isclose(accumulator, tau * tau, rel_tol=1e-6):
        del settings["server.initial_accumulator"]  # v_{-1} = tau^2 follows from tau
    varying = ("client.lr", "server.lr")
    return record._replace(config={key: v for key, v in settings.items() if key not in varying})


class MethodTrials(NamedTuple):
    """The values of the ended trials of one method; None for a trial without a finite result."""

    method: str
    algorithm: str
    values: Sequence[float | None]


class EaseOfTuning(NamedTuple):
    """How many trials of a method are good in comparison with all methods."""

    method: str
    total: int  # ended trials; those that diverged count
    near_best: int  # trials within the tolerance of the best over all methods
    beats_reference: int | None  # trials better than the best of FedAvg; None without FedAvg, and for itself
    sorted_values: tuple[float, ...]  # best first; shorter than `total` if trials have no result

    @property
    def near_best_share(self) -> float | None:
        return self.near_best / self.total if self.total else None

    @property
    def beats_reference_share(self) -> float | None:
        if self.beats_reference is None or not self.total:
            return None
        return self.beats_reference / self.total

    def sorted_curve(self) -> list[tuple[float, float]]:
        """Return points (share of the trials, value): this share of the trials is at least as good.

        >>> EaseOfTuning("fedadam", 4, 1, None, (0.9, 0.8, 0.1)).sorted_curve()
        [(0.25, 0.9), (0.5, 0.8), (0.75, 0.1)]
        """
        return [((place + 1) / self.total, value) for place, value in enumerate(self.sorted_values)]


def measure_ease_of_tuning(
    methods: Sequence[MethodTrials], higher_is_better: bool, tolerance: Tolerance
) -> list[EaseOfTuning]:
    """Compare the trials of all methods with the best trial over all methods, and with the best of FedAvg.

    With a limit of its own, a method whose trials are all equally bad would look easy to tune.

    Args:
        methods: the values of the ended trials of each method.
        higher_is_better: the direction of the values.
        tolerance: the distance from the best value that counts as near.

    Returns:
        One entry for each method, in the same order.

    Examples:
        >>> methods = [MethodTrials("a", "fedavg", [0.5, None]), MethodTrials("b", "fedadam", [0.6, 0.595])]
        >>> [ease.near_best for ease in measure_ease_of_tuning(methods, True, Tolerance(0.01, False))]
        [0, 2]
    """

    def best_of(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return (max if higher_is_better else min)(known, default=None)

    best = best_of(value for method in methods for value in method.values)
    reference = best_of(v for method in methods if method.algorithm == REFERENCE for v in method.values)
    results = []
    for method in methods:
        known = sorted((v for v in method.values if v is not None), reverse=higher_is_better)
        near = beats = 0
        if best is not None:
            limit, slack = tolerance.limit(best, higher_is_better), ROUNDING * abs(best)
            near = sum(v >= limit - slack if higher_is_better else v <= limit + slack for v in known)
        if reference is not None:
            beats = sum(v > reference if higher_is_better else v < reference for v in known)
        has_reference = reference is not None and method.algorithm != REFERENCE
        results.append(
            EaseOfTuning(
                method.method, len(method.values), near, beats if has_reference else None, tuple(known)
            )
        )
    return results


def grid_ease_of_tuning(grids: Sequence[RateGrid], metric: str) -> list[EaseOfTuning]:
    """Measure the methods of grids. Unfinished trials do not count; those that diverged do."""
    methods = [
        MethodTrials(
            grid.method,
            grid.trials[0].group.records[0].label,
            [trial.result for trial in grid.trials if trial.state != "unfinished"],
        )
        for grid in grids
    ]
    higher_is_better = all(grid.higher_is_better for grid in grids)  # the same for all grids of a metric
    return measure_ease_of_tuning(methods, higher_is_better, metric_tolerance(metric))
