"""All tables and figures by name: their place in the paper, the runs they need and how they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fedopt.errors import UnknownName, unknown
from fedopt_paper.artifacts import datasets, decay, heatmaps, performance, tuning
from fedopt_paper.artifacts.cells import ArtifactContent
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.published import (
    ADAPTIVE,
    CENTRALIZED,
    DECAY_TASK,
    METHODS,
    OPTIMIZERS,
    SCAFFOLD,
    TASK_NAMES,
)
from fedopt_paper.results import RunReader
from fedopt_paper.scales import ReproductionScale

Planner = Callable[[RunPlan], Iterator[PlannedRun]]


@dataclass(frozen=True)
class Artifact:
    """One table or figure."""

    name: str
    title: str
    section: str  # of the paper
    make: Callable[[RunReader], ArtifactContent]
    plan_runs: Planner = lambda plan: iter(())
    tasks: tuple[str, ...] = tuple(TASK_NAMES)
    shows_sweeps: bool = False  # then it leaves out tasks that have none at a scale

    def tasks_at(self, scale: ReproductionScale) -> tuple[str, ...]:
        """Return the tasks that it shows at a scale."""
        return tuple(task for task in self.tasks if not self.shows_sweeps or scale.has_sweeps(task))

    def restrict(self, plan: RunPlan) -> RunPlan:
        """Return the part of a plan for the tasks that it shows."""
        return plan.restrict(self.tasks_at(plan.scale))

    def runs(self, plan: RunPlan) -> tuple[PlannedRun, ...]:
        """Return the runs that it needs, each once."""
        return tuple(dict.fromkeys(self.plan_runs(self.restrict(plan))))

    def content(self, reader: RunReader) -> ArtifactContent:
        """Make the tables and the figure from the runs that exist."""
        plan = self.restrict(reader.plan)
        content = self.make(replace(reader, plan=plan))
        omitted = [task for task in self.tasks if task in reader.plan.tasks and task not in plan.tasks]
        if not omitted:
            return content
        names = ", ".join(TASK_NAMES[task] for task in omitted)
        note = f"Not shown, because this scale has no sweeps for them: {names}."
        return content._replace(notes=(note, *content.notes))


def _each(methods: Sequence[str], plan_one: Callable[[RunPlan, str, str], Iterable[PlannedRun]]) -> Planner:
    """Plan the runs of each method on each task."""
    return lambda plan: (run for task in plan.tasks for m in methods for run in plan_one(plan, task, m))


_PUBLISHED = _each(OPTIMIZERS, RunPlan.published_per_seed)
_SWEEPS = _each(METHODS, RunPlan.sweep)
_ADAPTIVE_SWEEPS = _each(ADAPTIVE, RunPlan.sweep)
_HEAT_MAPS = _each(OPTIMIZERS, RunPlan.heat_map)


def _plan_methods(plan: RunPlan) -> Iterator[PlannedRun]:
    """Plan the five optimizers with the paper's rates, and the sweep that selects SCAFFOLD's."""
    yield from _PUBLISHED(plan)
    yield from _each([SCAFFOLD], RunPlan.sweep)(plan)


def _plan_decay(plan: RunPlan) -> Iterator[PlannedRun]:
    for optimizer in CENTRALIZED:
        yield from plan.central_sweep(optimizer)
    yield from _PUBLISHED(plan)
    for method in OPTIMIZERS:
        yield from plan.decay_sweep(method)


_ALL = tuple(TASK_NAMES)
_RESULTS = "Section 5, results"
_HYPERPARAMETERS = "Appendix, best performing hyperparameters"
_ROBUSTNESS = "appendix, learning rate robustness"

_LIST = (
    Artifact(
        "performance",
        "Validation performance of all methods",
        f"{_RESULTS}, performance table",
        performance.performance,
        _plan_methods,
    ),
    Artifact(
        "so_test",
        "Stack Overflow, test set",
        "Appendix, Stack Overflow test set performance",
        performance.so_test,
        _PUBLISHED,
        ("so_nwp", "so_lr"),
    ),
    Artifact(
        "learning_rates",
        "Best learning rates",
        _HYPERPARAMETERS,
        tuning.learning_rates,
        _SWEEPS,
        shows_sweeps=True,
    ),
    Artifact(
        "tau_values",
        "Best values of τ",
        _HYPERPARAMETERS,
        tuning.tau_values,
        _ADAPTIVE_SWEEPS,
        shows_sweeps=True,
    ),
    Artifact(
        "decay",
        "Centralized training and learning-rate decay",
        "Appendix, learning rate decay",
        decay.decay,
        _plan_decay,
        (DECAY_TASK,),
    ),
    Artifact("datasets", "Dataset statistics", "Appendix, datasets and models", datasets.datasets),
    Artifact(
        "curves_panels",
        "Validation curves, six tasks in one figure",
        _RESULTS,
        performance.curves,
        _plan_methods,
        tuple(task for task in TASK_NAMES if task != "emnist_cr"),
    ),
    *(
        Artifact(
            f"curves_{task}",
            f"Validation curves, {name}",
            "Appendix, results on EMNIST CR" if task == "emnist_cr" else _RESULTS,
            performance.curves,
            _plan_methods,
            (task,),
        )
        for task, name in TASK_NAMES.items()
    ),
    *(
        Artifact(
            f"heatmaps_{task}",
            f"Learning-rate heat maps, {name}",
            f"{_RESULTS}, and {_ROBUSTNESS}" if task == "so_nwp" else _ROBUSTNESS.capitalize(),
            heatmaps.heatmaps,
            _HEAT_MAPS,
            (task,),
            shows_sweeps=True,
        )
        for task, name in TASK_NAMES.items()
    ),
    Artifact(
        "server_rates",
        "Best server rate for each client rate",
        "Appendix, relation between client and server learning rates",
        tuning.server_rates,
        _HEAT_MAPS,
        shows_sweeps=True,
    ),
    Artifact(
        "tau",
        "Performance against τ",
        f"{_RESULTS}, and appendix, robustness of the adaptivity parameter",
        tuning.tau,
        _ADAPTIVE_SWEEPS,
        shows_sweeps=True,
    ),
    Artifact(
        "labels",
        "Unique labels per client of CIFAR-100",
        "Appendix, creating a federated CIFAR-100",
        datasets.labels,
        tasks=("cifar100",),
    ),
)
ARTIFACTS = {artifact.name: artifact for artifact in _LIST}
GROUPS = {
    "curves": tuple(name for name in ARTIFACTS if name.startswith("curves_")),
    "heatmaps": tuple(name for name in ARTIFACTS if name.startswith("heatmaps_")),
    "all": tuple(ARTIFACTS),
}


def find_artifacts(name: str) -> tuple[Artifact, ...]:
    """Return the artifact or the group called `name`."""
    if name not in ARTIFACTS and name not in GROUPS:
        raise unknown("artifact", name, [*ARTIFACTS, *GROUPS, "list"])
    return tuple(ARTIFACTS[member] for member in GROUPS.get(name, (name,)))


def select_artifacts(name: str, tasks: tuple[str, ...], scale: ReproductionScale) -> tuple[Artifact, ...]:
    """Return the artifact or the group called `name`, without artifacts that show none of `tasks`."""
    named = find_artifacts(name)
    selected = tuple(artifact for artifact in named if set(artifact.tasks_at(scale)) & set(tasks))
    if selected:
        return selected
    given = ",".join(tasks)
    possible = [t for t in _ALL if any(t in artifact.tasks for artifact in named)]
    allowed = [t for t in _ALL if any(t in artifact.tasks_at(scale) for artifact in named)]
    shown = ", ".join(possible)
    message = f"{name} shows sweeps of {shown}; scale {scale.name} has none, so choose another --scale"
    if allowed:
        where = "" if len(allowed) == len(possible) else f" at scale {scale.name}"
        message = f"{name} has none of the tasks in --tasks {given}{where}; allowed: {', '.join(allowed)}"
    raise UnknownName(message, kind="task", name=given, allowed=allowed)


def parse_tasks(text: str | None) -> tuple[str, ...]:
    """Parse a comma-separated list of tasks. The result is in the paper's order; None means all tasks."""
    if text is None:
        return _ALL
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        message = f"--tasks is empty; allowed: {', '.join(_ALL)}"
        raise UnknownName(message, kind="task", allowed=_ALL)
    for name in names:
        if name not in TASK_NAMES:
            raise unknown("task in --tasks", name, _ALL)
    return tuple(task for task in _ALL if task in names)
