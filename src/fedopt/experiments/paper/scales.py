"""How much of the paper's work is done: everything, what a laptop does overnight, or a look at the machinery.

A scale says in `said` what it leaves out; every page and table repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedopt.experiments.paper.published import CENTRALIZED_EPOCHS, DECAY_ROUNDS, HEAT_MAP_TAU, settings
from fedopt.experiments.sweep.grid import values_of
from fedopt.tasks import TASKS
from fedopt.tasks.base import Grid

# log10 rates around which the optimizers of centralized training are tuned; the paper prints none.
CENTRAL_RATES = {"adagrad": -2.0, "adam": -3.0, "yogi": -2.5, "sgdm": -2.0, "sgd": -1.0}


@dataclass(frozen=True)
class Scale:
    """One size of the reproduction. None stands for the paper's own value."""

    name: str
    what: str
    said: tuple[str, ...]  # what was reduced, in sentences
    rounds: int | None = None
    cohort: int | None = None
    steps: int | None = None  # of a client; None: one epoch
    width: int | None = None  # values of each rate, around the paper's best; None: its whole grid
    samples: Mapping[str, int] = field(default_factory=dict)  # evaluation examples; "" for other tasks
    eval_every: int = 50
    eval_last_every: int = 10
    full_test: bool = True  # whether Stack Overflow's runs end with the full test set
    decay_rounds: int = DECAY_ROUNDS
    epochs: int = CENTRALIZED_EPOCHS  # of centralized training
    writers: int = 0  # whose data centralized training has; 0: all
    keep_checkpoints: bool = True  # of the runs with the paper's rates; sweeps keep none of what is over
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every run, beside all this

    def rounds_of(self, task: str) -> int:
        return self.rounds or settings(task).rounds

    def cohort_of(self, task: str) -> int:
        return self.cohort or settings(task).clients_per_round

    def sample_of(self, task: str) -> int:
        """Test examples of an evaluation; 0 is all, as in the paper except on Stack Overflow."""
        if self.samples:
            return self.samples.get(task, self.samples[""])
        return TASKS[task].eval_sample if TASKS[task].full_test_at_end else 0

    def rates(self, grid: Grid, best: float) -> tuple[float, ...]:
        """The values of a rate that are tried."""
        return around(values_of(grid), best, self.width)

    def taus(self, task: str, best: float) -> tuple[float, ...]:
        """The values of tau: the paper's grid, or that of the heat maps and another."""
        grid = values_of(settings(task).tau_grid)
        if self.width is None:
            return grid
        other = best if best != HEAT_MAP_TAU else HEAT_MAP_TAU + 1
        return tuple(sorted((HEAT_MAP_TAU, other)))

    def decay_taus(self, task: str, best: float) -> tuple[float, ...]:
        """The values of tau that are tried again under decay: all of them, or the paper's best."""
        return self.taus(task, best) if self.width is None else (best,)


def around(values: tuple[float, ...], best: float, width: int | None) -> tuple[float, ...]:
    """`width` neighbouring values of a grid with `best` in the middle, or nearest to it at an end.

    >>> around((-3.0, -2.5, -2.0, -1.5), -2.0, 3), around((-3.0, -2.5, -2.0), -3.0, 2)
    ((-2.5, -2.0, -1.5), (-3.0, -2.5))
    """
    if width is None or width >= len(values):
        return values
    first = min(max(values.index(best) - width // 2, 0), len(values) - width)
    return values[first : first + width]


SWEPT = "Checkpoints of a sweep's trials are removed when they are over: thousands would fill any disk."
PAPER = Scale(
    name="paper",
    what="the paper's rounds, cohorts and grids",
    said=(
        "Nothing is reduced: the paper's rounds, cohorts, batch sizes, grids and test sets.",
        "The model is evaluated every 50 rounds and every 10 of the last 100; the paper's code does it "
        "every round.",
        SWEPT,
    ),
)
SMALL = Scale(
    name="small",
    what="100 rounds, 3 x 3 rates: hours on a laptop for one artifact of one task, a day for the largest",
    said=(
        "100 rounds instead of 1,500 to 4,000: the mean over the last 100 rounds is a mean over all of them.",
        "10 clients a round also for SO NWP, which has 50 in the paper.",
        "Sweeps try 3 x 3 rates around the paper's best and two values of tau (1e-3 and the paper's best, or "
        "1e-2), not the paper's whole grid.",
        "Evaluation every 10 rounds on 1,000 test examples (CIFAR) or 2,000; no full test set at the end: "
        "the test-set table shows the last evaluation.",
        "Learning-rate decay every 33 rounds instead of 500, tuned with the paper's tau; centralized "
        "training for 10 epochs instead of 100, on the first 340 writers, with three rates per optimizer.",
        SWEPT,
    ),
    rounds=100,
    cohort=10,
    width=3,
    samples={"cifar10": 1000, "cifar100": 1000, "": 2000},
    eval_every=10,
    full_test=False,
    decay_rounds=33,
    epochs=10,
    writers=340,
)
SMOKE = Scale(
    name="smoke",
    what="three rounds, two clients, one step: shows that everything runs, its numbers mean nothing",
    said=(
        "Three rounds of two clients with one step each: this shows that everything runs. The numbers mean "
        "nothing.",
        "Sweeps try 2 x 2 rates at the paper's best and two values of tau (1e-3 and the paper's best, or "
        "1e-2); trials are shared by all artifacts.",
        "Evaluation every round on 20 test examples (CIFAR) or 100; no full test set at the end: the "
        "test-set table shows the last evaluation.",
        "Learning-rate decay every round instead of every 500, tuned with the paper's tau; centralized "
        "training is three steps on the first 20 writers, with two rates per optimizer.",
        "Checkpoints are removed when a trial is done.",
    ),
    rounds=3,
    cohort=2,
    steps=1,
    width=2,
    samples={"cifar10": 20, "cifar100": 20, "": 100},
    eval_every=1,
    eval_last_every=1,
    full_test=False,
    decay_rounds=1,
    epochs=3,
    writers=20,
    keep_checkpoints=False,
)
SCALES = {scale.name: scale for scale in (PAPER, SMALL, SMOKE)}
