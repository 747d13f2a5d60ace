"""Sweeps over rates and tau on one dataset."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import NamedTuple

from claims.plan import MORE_TEXT_TAU, TEXT_TAU
from claims.results import Results
from claims.selection import joined_records, method_grids
from claims.tags_plan import GRIDS, MORE_POINTS, TAU
from fedopt.reports import RateGrid
from fedopt_paper.published import ADAPTIVE, METHOD_NAMES, OPTIMIZERS

HEAT_MAP_TAU = 1e-3


class Sweeps(NamedTuple):
    """Sweeps on one dataset."""

    name: str
    data: str
    metric: str
    label: str  # of the metric
    needed: tuple[str, ...]  # the entries without which there is no verdict
    optional: tuple[str, ...] = ()
    points: Collection[tuple[float, float]] = ()  # log10 rates that ran with every tau; (): all trials
    exceptions: Collection[str] = ()  # methods for which the paper does not claim robustness to tau
    all_taus: Collection[str] = ("fedadam", "fedyogi")  # for which it claims small differences among all tau
    uses_last: bool = False  # the last evaluation instead of the mean over the last 100 rounds

    @property
    def title(self) -> str:
        return self.data[0].upper() + self.data[1:]

    def is_complete(self, results: Results, method: str = "") -> bool:
        """Whether all entries have run or, with `method`, all except those of other methods."""
        others = set(METHOD_NAMES) - {method} if method else set()
        needed = [name for name in self.needed if others.isdisjoint(name.split("/"))]
        return all(name in results and results[name].complete for name in needed)

    def grids(self, results: Results) -> dict[str, RateGrid]:
        """Return the grid of each method. Optional entries are used if all of them are complete."""
        has_all = all(name in results and results[name].complete for name in self.optional)
        records = joined_records(results, (*self.needed, *(self.optional if has_all else ())))
        if self.uses_last:
            records = [r._replace(info={**r.info, "value": r.info.get("last")}) for r in records]
        return method_grids(records)


_TAGS = ("tags", "tags of real questions", "recall_at_5", "recall at 5")
_DIGITS = ("digits", "digits, small network", "accuracy", "accuracy")
_DIGIT_GRIDS = tuple(f"writers/grid/{method}" for method in OPTIMIZERS)
TAG_GRIDS = Sweeps(*_TAGS, GRIDS, tuple(MORE_POINTS))
DIGIT_GRIDS = Sweeps(*_DIGITS, _DIGIT_GRIDS, tuple(f"writers/grid_seeds/{method}" for method in OPTIMIZERS))
TAG_TAUS = Sweeps(
    *_TAGS,
    (TAU, f"{TAU}_clients", *GRIDS),
    points=list(product((1.0, 2.0, 3.0), (-1.0, -0.5, 0.0, 0.5, 1.0))),
    exceptions=("fedadam", "fedyogi"),
    all_taus=("fedadagrad",),
)
DIGIT_TAUS = Sweeps(
    *_DIGITS,
    (*(f"writers/tau/{method}" for method in ADAPTIVE), *_DIGIT_GRIDS),
    tuple(f"writers/{name}/{method}" for method in ADAPTIVE for name in ("tau_seeds", "grid_seeds")),
    points=list(product((-1.5, -1.0, -0.5), (-2.5, -2.0, -1.5, -1.0, -0.5, 0.0))),
)
# The runs have 100 rounds, so the mean over the last 100 would measure the start of training.
TEXT_TAUS = Sweeps(
    "text", "Shakespeare", "accuracy", "accuracy", tuple(TEXT_TAU), tuple(MORE_TEXT_TAU), uses_last=True
)


def heat_maps(sweeps: Sweeps, results: Results) -> dict[str, RateGrid]:
    """Return the trials of the heat maps: the same points for all methods."""
    grids = sweeps.grids(results)
    return {
        method: grids[method].select_tau(HEAT_MAP_TAU if method in ADAPTIVE else None)
        for method in OPTIMIZERS
        if method in grids
    }
