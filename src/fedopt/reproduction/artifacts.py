"""The paper's tables and figures by name: where each stands, the runs it needs, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedopt.errors import UserError, unknown
from fedopt.reproduction import draw_figures, draw_heatmaps, draw_tables
from fedopt.reproduction.artifact_cells import Drawn
from fedopt.reproduction.published import DECAY_TASK, TASK_NAMES
from fedopt.reproduction.study import Spec, Study


def _no_runs(study: Study) -> Iterator[Spec]:
    return iter(())


@dataclass(frozen=True)
class Artifact:
    """One table or figure."""

    name: str
    title: str
    where: str  # in the paper
    tasks: tuple[str, ...]
    plan: Callable[[Study], Iterator[Spec]]
    draw: Callable[[Study], Drawn]

    def specs(self, study: Study) -> tuple[Spec, ...]:
        """The runs it needs, each once."""
        return tuple(dict.fromkeys(self.plan(study.of(*self.tasks_of(study)))))

    def drawn(self, study: Study) -> Drawn:
        return self.draw(study.of(*self.tasks_of(study)))

    def tasks_of(self, study: Study) -> tuple[str, ...]:
        return tuple(task for task in self.tasks if task in study.tasks)


_ALL = tuple(TASK_NAMES)
_SECTION_5 = "Section 5, results"
_ROBUSTNESS = "appendix, learning rate robustness"


def _for_each_task() -> Iterator[Artifact]:
    for task, name in TASK_NAMES.items():
        place = "Appendix, results on EMNIST CR" if task == "emnist_cr" else _SECTION_5
        yield Artifact(
            f"curves_{task}",
            f"Validation curves, {name}",
            place,
            (task,),
            draw_tables.plan_methods,
            draw_figures.curves,
        )
    for task, name in TASK_NAMES.items():
        yield Artifact(
            f"heatmaps_{task}",
            f"Learning-rate heat maps, {name}",
            f"{_SECTION_5}, and {_ROBUSTNESS}" if task == "so_nwp" else _ROBUSTNESS.capitalize(),
            (task,),
            draw_heatmaps.plan_heatmaps,
            draw_heatmaps.heatmaps,
        )


_LIST = (
    Artifact(
        "performance",
        "Validation performance of all methods",
        f"{_SECTION_5}, performance table",
        _ALL,
        draw_tables.plan_methods,
        draw_tables.performance,
    ),
    Artifact(
        "so_test",
        "Stack Overflow, test set",
        "Appendix, Stack Overflow test set performance",
        ("so_nwp", "so_lr"),
        draw_tables.plan_so_test,
        draw_tables.so_test,
    ),
    Artifact(
        "learning_rates",
        "Best learning rates",
        "Appendix, best performing hyperparameters",
        _ALL,
        draw_tables.plan_sweeps,
        draw_tables.learning_rates,
    ),
    Artifact(
        "tau_values",
        "Best values of τ",
        "Appendix, best performing hyperparameters",
        _ALL,
        draw_tables.plan_adaptive_sweeps,
        draw_tables.tau_values,
    ),
    Artifact(
        "decay",
        "Centralized training and learning-rate decay",
        "Appendix, learning rate decay",
        (DECAY_TASK,),
        draw_tables.plan_decay,
        draw_tables.decay,
    ),
    Artifact(
        "datasets",
        "Dataset statistics",
        "Appendix, datasets and models",
        _ALL,
        _no_runs,
        draw_tables.datasets,
    ),
    *_for_each_task(),
    Artifact(
        "server_rates",
        "Best server rate for each client rate",
        "Appendix, relation between client and server learning rates",
        _ALL,
        draw_heatmaps.plan_heatmaps,
        draw_figures.server_rates,
    ),
    Artifact(
        "tau",
        "Performance against τ",
        f"{_SECTION_5}, and appendix, robustness of the adaptivity parameter",
        _ALL,
        draw_tables.plan_adaptive_sweeps,
        draw_figures.tau,
    ),
    Artifact(
        "labels",
        "Unique labels per client of CIFAR-100",
        "Appendix, creating a federated CIFAR-100",
        ("cifar100",),
        _no_runs,
        draw_figures.labels,
    ),
)
ARTIFACTS = {artifact.name: artifact for artifact in _LIST}
GROUPS = {
    "curves": tuple(name for name in ARTIFACTS if name.startswith("curves_")),
    "heatmaps": tuple(name for name in ARTIFACTS if name.startswith("heatmaps_")),
    "all": tuple(ARTIFACTS),
}


def chosen(name: str, tasks: tuple[str, ...]) -> tuple[Artifact, ...]:
    """The artifacts that a name stands for, those with none of `tasks` left out."""
    if name not in ARTIFACTS and name not in GROUPS:
        raise unknown("artifact", name, [*ARTIFACTS, *GROUPS, "list"])
    named = [ARTIFACTS[one] for one in GROUPS.get(name, (name,))]
    kept = tuple(artifact for artifact in named if set(artifact.tasks) & set(tasks))
    if not kept:
        allowed = ", ".join(dict.fromkeys(task for artifact in named for task in artifact.tasks))
        raise UserError(f"{name} has none of --tasks {','.join(tasks)}; it has {allowed}")
    return kept


def read_tasks(text: str | None) -> tuple[str, ...]:
    """Tasks with commas between, in the paper's order; all without any."""
    if text is None:
        return _ALL
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UserError(f"--tasks names none; allowed: {', '.join(_ALL)}")
    for name in names:
        if name not in TASK_NAMES:
            raise unknown("task in --tasks", name, _ALL)
    return tuple(task for task in _ALL if task in names)
