"""How easy methods are to tune, measured on the trials of a sweep.

All methods are compared with the same value, the best over all methods. With a limit of its own, a method
whose trials are all equally bad would look easy to tune.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedopt.analysis.heatmap import ROUNDING, RateGrid, Tolerance, metric_tolerance

REFERENCE = "fedavg"  # the algorithm that adaptive methods have to beat


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
    """Compare the trials of all methods with the best trial over all methods, and with the best of FedAvg."""

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
