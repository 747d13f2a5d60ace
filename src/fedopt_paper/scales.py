"""Scales of a reproduction: the paper's full work, a part that a laptop can do, or a smoke test.

`ReproductionScale.reductions` states in sentences what a scale leaves out. Every page and table repeats it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from fedopt.formatting import count_noun
from fedopt.runs import LAST_ROUNDS
from fedopt.tasks import TASKS, LogRange
from fedopt_paper.published import (
    CENTRALIZED_EPOCHS,
    DECAY_ROUNDS,
    DECAY_TASK,
    HEAT_MAP_TAU,
    TASK_NAMES,
    paper_settings,
)

DECAY_LEVELS = 3  # in the paper: 1,500 rounds, the rate times 0.1 every 500 rounds


@dataclass(frozen=True)
class ReproductionScale:
    """How much of the paper's work is done. None means the paper's own value."""

    name: str
    summary: str
    has_meaning: bool = True  # whether our numbers can be compared with each other
    remarks: tuple[str, ...] = ()  # sentences that do not follow from the fields below
    rounds: int | None = None
    costly_rounds: Mapping[str, int] = field(default_factory=dict)  # fewer rounds for tasks with long steps
    cohort: int | None = None
    steps: int | None = None  # local steps of a client; None: one epoch
    width: int | None = None  # values of each rate around the paper's best; None: the whole grid
    costly_widths: Mapping[str, int] = field(default_factory=dict)  # tasks with fewer values; 1: no sweeps
    samples: Mapping[str, int] = field(default_factory=dict)  # evaluation examples; "" for other tasks
    eval_every: int = 50
    eval_last_every: int = 10
    evaluations: int | None = None  # in a run, at equal intervals; None: see the two intervals above
    full_test: bool = True  # whether runs on Stack Overflow end with the full test set
    decay_rounds: int = DECAY_ROUNDS
    epochs: int = CENTRALIZED_EPOCHS  # of centralized training
    writers: int = 0  # clients whose data centralized training uses; 0: all
    keep_checkpoints: bool = True  # of runs with the paper's rates; those of sweeps are always removed
    tasks: tuple[str, ...] = tuple(TASK_NAMES)  # that the texts describe; runs do not depend on it

    @property
    def is_comparable(self) -> bool:
        """Whether our numbers can be compared with the paper's: training has the paper's rounds."""
        return self.rounds is None

    @property
    def title(self) -> str:
        """The scale in a few words, for figures."""
        if not self.has_meaning:
            return f"scale: {self.name}, the numbers have no meaning"
        return f"scale: {self.name}" + (
            "" if self.rounds is None else f", {_range(map(self.task_rounds, self.tasks))} rounds"
        )

    @property
    def averaged_rounds(self) -> str:
        """The rounds over which our final numbers are means."""
        return f"the last {LAST_ROUNDS} rounds" if self.rounds is None else "the last tenth of the rounds"

    @property
    def reductions(self) -> tuple[str, ...]:
        """What differs from the paper, one sentence each."""
        published = "" if self.keep_checkpoints else " and of runs with the paper's rates"
        checkpoints = f"Checkpoints of sweeps{published} are removed when a run ends, to limit disk space."
        return (*self.remarks, *_training(self), *_evaluation(self), *_decay(self), checkpoints)

    def restrict(self, tasks: Collection[str]) -> ReproductionScale:
        """Return the scale with texts that describe only these tasks. Runs are the same."""
        return replace(self, tasks=tuple(tasks)) if tasks else self

    def task_rounds(self, task: str) -> int:
        return self.costly_rounds.get(task) or self.rounds or paper_settings(task).rounds

    def last_rounds(self, rounds: int) -> int:
        """Return the number of last rounds over which our numbers of a run with `rounds` rounds are means.

        In short runs, the paper's 100 rounds would include the start of training.
        """
        return LAST_ROUNDS if self.rounds is None else max(1, rounds // 10)

    def task_cohort(self, task: str) -> int:
        return self.cohort or paper_settings(task).clients_per_round

    def evaluation_intervals(self, task: str) -> tuple[int, int]:
        """Return the rounds between evaluations of a task, and between those of the last 100 rounds."""
        if self.evaluations is None:
            return self.eval_every, self.eval_last_every
        every = ceil(self.task_rounds(task) / self.evaluations)
        return every, every

    def eval_sample(self, task: str) -> int:
        """Return the number of test examples of an evaluation. 0 means all, except on Stack Overflow."""
        if self.samples:
            return self.samples.get(task, self.samples[""])
        return TASKS[task].eval_sample if TASKS[task].full_test_at_end else 0

    def rates(self, task: str, grid: LogRange, best: float) -> tuple[float, ...]:
        """Return the values of a rate that are tried."""
        return select_around(grid.values, best, self.task_width(task))

    def task_width(self, task: str) -> int | None:
        return self.costly_widths.get(task, self.width)

    def has_sweeps(self, task: str) -> bool:
        """Return whether methods are tuned on a task. If not, runs have the paper's rates only."""
        return self.task_width(task) != 1

    def taus(self, task: str, best: float) -> tuple[float, ...]:
        """Return the values of tau: the paper's grid, or the value of the heat maps and one more.

        A task without sweeps has the paper's best value only.
        """
        if not self.has_sweeps(task):
            return (best,)
        if self.width is None:
            return paper_settings(task).tau_grid.values
        other = best if best != HEAT_MAP_TAU else HEAT_MAP_TAU + 1
        return tuple(sorted((HEAT_MAP_TAU, other)))

    def decay_taus(self, task: str, best: float) -> tuple[float, ...]:
        """Return the values of tau with learning-rate decay: the paper's grid, or its best value."""
        return self.taus(task, best) if self.width is None else (best,)


def select_around(values: tuple[float, ...], best: float, width: int | None) -> tuple[float, ...]:
    """Select `width` neighbouring values with `best` in the middle, or as close to it as the ends allow.

    >>> select_around((-3.0, -2.5, -2.0, -1.5), -2.0, 3), select_around((-3.0, -2.5, -2.0), -3.0, 2)
    ((-2.5, -2.0, -1.5), (-3.0, -2.5))
    """
    if width is None or width >= len(values):
        return values
    first = min(max(values.index(best) - width // 2, 0), len(values) - width)
    return values[first : first + width]


def _range(counts: Iterable[int]) -> str:
    """Return the smallest and the largest number.

    >>> _range([1500, 4000, 1500]), _range([4])
    ('1,500 to 4,000', '4')
    """
    found = set(counts)
    return " to ".join(f"{count:,}" for count in sorted({min(found), max(found)}))


def _training(scale: ReproductionScale) -> Iterator[str]:
    papers = {task: paper_settings(task) for task in scale.tasks}
    tuned = [task for task in scale.tasks if scale.has_sweeps(task)]
    untuned = [TASK_NAMES[task] for task in scale.tasks if not scale.has_sweeps(task)]
    if scale.rounds is not None:
        most = max(map(scale.task_rounds, scale.tasks))
        yield f"{most} rounds instead of {_range(paper.rounds for paper in papers.values())}."
        if parts := [
            f"{n} for {TASK_NAMES[t]}"
            for t, n in scale.costly_rounds.items()
            if t in scale.tasks and n < most
        ]:
            yield f"Tasks with long steps have fewer rounds: {', '.join(parts)}."
        yield (
            f"Our numbers{', and the training loss that selects rates,' if tuned else ''} are means over the "
            f"last tenth of the rounds instead of the last {LAST_ROUNDS}."
        )
    if scale.cohort is not None:
        others: dict[int, list[str]] = {}
        for task, paper in papers.items():
            if paper.clients_per_round != scale.cohort:
                others.setdefault(paper.clients_per_round, []).append(TASK_NAMES[task])
        if others:
            cohorts = " and ".join(f"{n} for {', '.join(names)}" for n, names in others.items())
            yield f"{scale.cohort} clients per round. The paper has {cohorts}."
    if scale.steps is not None:
        yield f"A client takes {count_noun(scale.steps, 'step')} instead of one epoch."
    if scale.width is None:
        yield "The paper's rounds, cohorts, batch sizes and grids. SCAFFOLD uses the same grid of rates."
    elif tuned:
        widest = max(scale.task_width(task) or 0 for task in tuned)
        yield (
            f"Sweeps try {widest} x {widest} rates around the paper's best rates instead of the "
            "whole grid. For SCAFFOLD, for which the paper prints no rates, they are around FedAvg's."
        )
        if parts := [
            f"{n} x {n} for {TASK_NAMES[task]}"
            for task, n in scale.costly_widths.items()
            if task in tuned and n < widest
        ]:
            yield f"Some tasks have fewer rates: {', '.join(parts)}."
        yield "Sweeps try two values of tau: 1e-3, and the paper's best or 1e-2."
    if untuned:
        which = f" for {', '.join(untuned)}" if tuned else ""
        yield f"No sweeps{which}: runs have the paper's rates, and SCAFFOLD has those of FedAvg."


def _evaluation(scale: ReproductionScale) -> Iterator[str]:
    intervals = [scale.evaluation_intervals(task) for task in scale.tasks]
    is_each_round = set(intervals) == {(1, 1)}
    every, last_every = _range(every for every, _ in intervals), _range(last for _, last in intervals)
    interval = "every round" if is_each_round else f"every {every} rounds"
    if every != last_every:
        interval += f" and every {last_every} of the last {LAST_ROUNDS}"
    sample = ""
    if scale.samples:
        named = {task: n for task, n in scale.samples.items() if task in scale.tasks}
        parts = [f"{n:,} ({TASK_NAMES[task]})" for task, n in named.items()]
        if set(scale.tasks) - set(named):
            parts.append(f"{scale.samples['']:,}" + (" (other tasks)" if named else ""))
        sample = f" on {', '.join(parts)} test examples"
    paper = "" if is_each_round else "; the paper's code does it every round"
    yield f"The model is evaluated {interval}{sample}{paper}."
    if not scale.full_test:
        yield "No evaluation on the full test set: the test-set table shows the last evaluation."


def _decay(scale: ReproductionScale) -> Iterator[str]:
    if DECAY_TASK not in scale.tasks:
        return
    if scale.decay_rounds != DECAY_ROUNDS:
        yield (
            f"Learning-rate decay every {count_noun(scale.decay_rounds, 'round')} instead of {DECAY_ROUNDS}, "
            f"which gives the paper's {DECAY_LEVELS} levels, tuned with the paper's tau."
        )
    if scale.epochs != CENTRALIZED_EPOCHS:
        length = f"{count_noun(scale.steps, 'step')} each" if scale.steps else "complete"
        yield f"Centralized training for {scale.epochs} epochs ({length}) instead of {CENTRALIZED_EPOCHS}."
    if scale.writers:
        yield (
            f"Centralized training on the first {scale.writers} writers, evaluated on the test images of the "
            "same writers. The federated rows use test images of all writers."
        )


PAPER = ReproductionScale(name="paper", summary="the paper's rounds, cohorts and grids")
SMALL = ReproductionScale(
    name="small",
    summary="16 to 100 rounds, up to 3 x 3 rates: hours on two cores for everything",
    remarks=("Runs end early in training: numbers show which methods start fast, not which become best.",),
    rounds=100,
    costly_rounds=dict(emnist_cr=30, shakespeare=30, so_nwp=16, cifar10=16, cifar100=16),
    cohort=10,
    width=3,
    costly_widths=dict(emnist_cr=2, shakespeare=2, emnist_ae=2, so_nwp=1, cifar10=1, cifar100=1),
    samples={"cifar10": 1000, "cifar100": 1000, "so_nwp": 1000, "": 2000},
    evaluations=10,
    full_test=False,
    decay_rounds=10,
    epochs=5,
    writers=100,
)
SMOKE = ReproductionScale(
    name="smoke",
    has_meaning=False,
    summary="three rounds, two clients, one step: tests the software",
    remarks=("The numbers have no meaning.",),
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
