"""All tables and figures by name: their place in the paper, the runs they need and how they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fedopt.errors import UnknownName, unknown
from fedopt.reproduction.artifacts import datasets, decay, heatmaps, performance, tuning
from fedopt.reproduction.artifacts.cells import ArtifactContent
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.published import DECAY_TASK, TASK_NAMES
from fedopt.reproduction.results import RunReader


@dataclass(frozen=True)
class Artifact:
    """One table or figure."""

    name: str
    title: str
    section: str  # of the paper
    tasks: tuple[str, ...]
    plan_runs: Callable[[RunPlan], Iterator[PlannedRun]]
    make: Callable[[RunReader], ArtifactContent]

    def runs(self, plan: RunPlan) -> tuple[PlannedRun, ...]:
        """Return the runs that it needs, each once."""
        return tuple(dict.fromkeys(self.plan_runs(plan.restrict(self.tasks))))

    def content(self, reader: RunReader) -> ArtifactContent:
        """Make the tables and the figure from the runs that exist."""
        return self.make(replace(reader, plan=reader.plan.restrict(self.tasks)))


def _no_runs(plan: RunPlan) -> Iterator[PlannedRun]:
    return iter(())


_ALL = tuple(TASK_NAMES)
_RESULTS = "Section 5, results"
_HYPERPARAMETERS = "Appendix, best performing hyperparameters"
_ROBUSTNESS = "appendix, learning rate robustness"

_LIST = (
    Artifact(
        "performance",
        "Validation performance of all methods",
        f"{_RESULTS}, performance table",
        _ALL,
        performance.plan_methods,
        performance.performance,
    ),
    Artifact(
        "so_test",
        "Stack Overflow, test set",
        "Appendix, Stack Overflow test set performance",
        ("so_nwp", "so_lr"),
        performance.plan_published,
        performance.so_test,
    ),
    Artifact(
        "learning_rates",
        "Best learning rates",
        _HYPERPARAMETERS,
        _ALL,
        tuning.plan_sweeps,
        tuning.learning_rates,
    ),
    Artifact(
        "tau_values",
        "Best values of τ",
        _HYPERPARAMETERS,
        _ALL,
        tuning.plan_adaptive_sweeps,
        tuning.tau_values,
    ),
    Artifact(
        "decay",
        "Centralized training and learning-rate decay",
        "Appendix, learning rate decay",
        (DECAY_TASK,),
        decay.plan_decay,
        decay.decay,
    ),
    Artifact(
        "datasets",
        "Dataset statistics",
        "Appendix, datasets and models",
        _ALL,
        _no_runs,
        datasets.datasets,
    ),
    *(
        Artifact(
            f"curves_{task}",
            f"Validation curves, {name}",
            "Appendix, results on EMNIST CR" if task == "emnist_cr" else _RESULTS,
            (task,),
            performance.plan_methods,
            performance.curves,
        )
        for task, name in TASK_NAMES.items()
    ),
    *(
        Artifact(
            f"heatmaps_{task}",
            f"Learning-rate heat maps, {name}",
            f"{_RESULTS}, and {_ROBUSTNESS}" if task == "so_nwp" else _ROBUSTNESS.capitalize(),
            (task,),
            heatmaps.plan_heatmaps,
            heatmaps.heatmaps,
        )
        for task, name in TASK_NAMES.items()
    ),
    Artifact(
        "server_rates",
        "Best server rate for each client rate",
        "Appendix, relation between client and server learning rates",
        _ALL,
        heatmaps.plan_heatmaps,
        tuning.server_rates,
    ),
    Artifact(
        "tau",
        "Performance against τ",
        f"{_RESULTS}, and appendix, robustness of the adaptivity parameter",
        _ALL,
        tuning.plan_adaptive_sweeps,
        tuning.tau,
    ),
    Artifact(
        "labels",
        "Unique labels per client of CIFAR-100",
        "Appendix, creating a federated CIFAR-100",
        ("cifar100",),
        _no_runs,
        datasets.labels,
    ),
)
ARTIFACTS = {artifact.name: artifact for artifact in _LIST}
GROUPS = {
    "curves": tuple(name for name in ARTIFACTS if name.startswith("curves_")),
    "heatmaps": tuple(name for name in ARTIFACTS if name.startswith("heatmaps_")),
    "all": tuple(ARTIFACTS),
}


def select_artifacts(name: str, tasks: tuple[str, ...]) -> tuple[Artifact, ...]:
    """Return the artifact or the group called `name`, without artifacts that have none of `tasks`."""
    if name not in ARTIFACTS and name not in GROUPS:
        raise unknown("artifact", name, [*ARTIFACTS, *GROUPS, "list"])
    named = [ARTIFACTS[member] for member in GROUPS.get(name, (name,))]
    selected = tuple(artifact for artifact in named if set(artifact.tasks) & set(tasks))
    if not selected:
        allowed = tuple(dict.fromkeys(task for artifact in named for task in artifact.tasks))
        given = ",".join(tasks)
        message = f"{name} has none of the tasks in --tasks {given}; allowed: {', '.join(allowed)}"
        raise UnknownName(message, kind="task", name=given, allowed=allowed)
    return selected


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
