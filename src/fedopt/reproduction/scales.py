"""How much of the paper's work is done: everything, what a laptop does overnight, or a look at the machinery.

A scale says in `said` what it leaves out, worked out from its fields; every page and table repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedopt.reproduction.published import CENTRALIZED_EPOCHS, DECAY_ROUNDS, HEAT_MAP_TAU, TASK_NAMES, settings
from fedopt.runs.records import LAST_ROUNDS
from fedopt.tasks import TASKS
from fedopt.tasks.base import LogRange

# log10 rates around which the optimizers of centralized training are tuned; the paper prints none.
CENTRAL_RATES = {"adagrad": -2.0, "adam": -3.0, "yogi": -2.5, "sgdm": -2.0, "sgd": -1.0}
DECAY_LEVELS = 3  # of the paper: 1,500 rounds, a tenth of the rate every 500


@dataclass(frozen=True)
class Scale:
    """One size of the reproduction. None stands for the paper's own value."""

    name: str
    what: str
    remarks: tuple[str, ...] = ()  # sentences that no field says
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

    @property
    def said(self) -> tuple[str, ...]:
        """What was reduced, in sentences."""
        return (*self.remarks, *_reductions(self), *_evaluation(self), *_decay(self), *_checkpoints(self))

    def rounds_of(self, task: str) -> int:
        return self.rounds or settings(task).rounds

    def cohort_of(self, task: str) -> int:
        return self.cohort or settings(task).clients_per_round

    def sample_of(self, task: str) -> int:
        """Test examples of an evaluation; 0 is all, as in the paper except on Stack Overflow."""
        if self.samples:
            return self.samples.get(task, self.samples[""])
        return TASKS[task].eval_sample if TASKS[task].full_test_at_end else 0

    def rates(self, grid: LogRange, best: float) -> tuple[float, ...]:
        """The values of a rate that are tried."""
        return around(grid.values, best, self.width)

    def taus(self, task: str, best: float) -> tuple[float, ...]:
        """The values of tau: the paper's grid, or that of the heat maps and another."""
        grid = settings(task).tau_grid.values
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


def _reductions(scale: Scale) -> Iterator[str]:
    """Rounds, cohorts, steps and grids."""
    if scale.rounds is not None:
        printed = [settings(task).rounds for task in TASK_NAMES]
        mean = (
            f": “the last {LAST_ROUNDS} rounds” are its {scale.rounds}" if scale.rounds <= LAST_ROUNDS else ""
        )
        yield f"{scale.rounds} rounds instead of {min(printed):,} to {max(printed):,}{mean}."
    if scale.cohort is not None:
        others: dict[int, list[str]] = {}
        for task, name in TASK_NAMES.items():
            if settings(task).clients_per_round != scale.cohort:
                others.setdefault(settings(task).clients_per_round, []).append(name)
        if others:
            printed_cohorts = " and ".join(f"{n} for {', '.join(names)}" for n, names in others.items())
            yield f"{scale.cohort} clients a round; the paper has {printed_cohorts}."
    if scale.steps is not None:
        yield f"A client takes {_count(scale.steps, 'step')} instead of an epoch."
    if scale.width is not None:
        yield (
            f"Sweeps try {scale.width} x {scale.width} rates around the paper's best, for SCAFFOLD, for "
            "which it prints none, around FedAvg's, and two values of tau (1e-3 and the paper's best, or "
            "1e-2), not the paper's whole grid."
        )
    else:
        yield "The paper's rounds, cohorts, batch sizes and grids; SCAFFOLD has the grid of rates too."


def _evaluation(scale: Scale) -> Iterator[str]:
    every = "every round" if scale.eval_every == 1 else f"every {scale.eval_every} rounds"
    if scale.eval_every > scale.eval_last_every:
        every += f" and every {scale.eval_last_every} of the last {LAST_ROUNDS}"
    sample = ""
    if scale.samples:
        special = {task: n for task, n in scale.samples.items() if task}
        parts = [f"{n:,} ({TASK_NAMES[task]})" for task, n in special.items()]
        sample = " on " + ", ".join([*parts, f"{scale.samples['']:,}"]) + " test examples"
    than = "" if scale.eval_every == 1 else "; the paper's code does it every round"
    yield f"The model is evaluated {every}{sample}{than}."
    if not scale.full_test:
        yield "No full test set at the end: the test-set table shows the last evaluation."


def _decay(scale: Scale) -> Iterator[str]:
    if scale.decay_rounds != DECAY_ROUNDS:
        rounds = _count(scale.decay_rounds, "round")
        yield (
            f"Learning-rate decay every {rounds} instead of {DECAY_ROUNDS}, which gives the paper's "
            f"{DECAY_LEVELS} levels, tuned with the paper's tau."
        )
    if scale.epochs != CENTRALIZED_EPOCHS:
        what = f"{_count(scale.steps, 'step')} each" if scale.steps else "whole"
        yield f"Centralized training for {scale.epochs} epochs ({what}) instead of {CENTRALIZED_EPOCHS}."
    if scale.writers:
        yield (
            f"Centralized training on the first {scale.writers} writers, tested on the test images of the "
            "same writers: another test set than that of the federated rows."
        )


def _checkpoints(scale: Scale) -> Iterator[str]:
    kept = "" if scale.keep_checkpoints else " and of the runs at the paper's rates"
    yield f"Checkpoints of a sweep's trials{kept} are removed as each is over: thousands would fill any disk."


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


PAPER = Scale(name="paper", what="the paper's rounds, cohorts and grids")
SMALL = Scale(
    name="small",
    what="100 rounds, 3 x 3 rates: hours on a laptop for one artifact of one task, up to days for all",
    rounds=100,
    cohort=10,
    width=3,
    samples={"cifar10": 1000, "cifar100": 1000, "": 2000},
    eval_every=10,
    full_test=False,
    decay_rounds=34,
    epochs=10,
    writers=340,
)
SMOKE = Scale(
    name="smoke",
    what="three rounds, two clients, one step: shows that everything runs, its numbers mean nothing",
    remarks=("This shows that everything runs. The numbers mean nothing.",),
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
