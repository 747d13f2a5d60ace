"""The runs that tables and figures need. Artifacts that plan the same run share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from fedopt.algorithms import VARIANTS
from fedopt.tasks import TASKS
from fedopt_paper.data_sources import DataSource, dataset_sizes, label_suffix
from fedopt_paper.published import ADAPTIVE, DATASET_BY_TASK, DECAY_TASK, HEAT_MAP_TAU, paper_settings
from fedopt_paper.scales import ReproductionScale

# log10 rates around which the optimizers of centralized training are tuned. The paper prints none.
CENTRAL_RATES = {"adagrad": -2.0, "adam": -3.0, "yogi": -2.5, "sgdm": -2.0, "sgd": -1.0}


class PlannedRun(NamedTuple):
    """One run that an artifact needs."""

    task: str
    algorithm: str
    point_items: tuple[tuple[str, float], ...]  # log10 of the rates and of tau
    settings_items: tuple[tuple[str, Any], ...]

    @property
    def point(self) -> dict[str, float]:
        return dict(self.point_items)

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.settings_items)


@dataclass(frozen=True)
class RunPlan:
    """The configuration of a reproduction, and the runs that follow from it."""

    scale: ReproductionScale
    sources: Mapping[str, DataSource]  # by dataset
    tasks: tuple[str, ...]  # in the paper's order
    variant: str = "as_run"
    seeds: tuple[int, ...] = (0,)  # for runs with the paper's rates; sweeps use the first

    def source(self, task: str) -> DataSource:
        return self.sources[DATASET_BY_TASK[task]]

    def label(self, task: str) -> str:
        """Return the label of the task's data, such as "synthetic"."""
        return self.source(task).label

    def restrict(self, tasks: Iterable[str]) -> RunPlan:
        """Return the part of the plan for some tasks."""
        selected = tuple(task for task in self.tasks if task in tasks)
        return replace(self, tasks=selected, scale=self.scale.restrict(selected))

    @property
    def title_suffix(self) -> str:
        """The data labels of all tasks, for the title of a figure."""
        return label_suffix([self.label(task) for task in self.tasks])

    def published(self, task: str, algorithm: str, seed: int | None = None) -> PlannedRun:
        """Plan the run with the paper's rates. On Stack Overflow it ends with the full test set."""
        rates = paper_settings(task).rates[algorithm]
        point = {"client_lr": float(rates.client_lr), "server_lr": float(rates.server_lr)}
        if rates.tau is not None:
            point["tau"] = float(rates.tau)
        full = self.scale.full_test and TASKS[task].full_test_at_end
        return self._run(task, algorithm, point, {"eval.final": "full"} if full else {}, seed)

    def published_per_seed(self, task: str, algorithm: str) -> tuple[PlannedRun, ...]:
        """Plan the run with the paper's rates for each seed."""
        return tuple(self.published(task, algorithm, seed) for seed in self.seeds)

    def sweep(self, task: str, algorithm: str) -> tuple[PlannedRun, ...]:
        """Plan the tuning grid of a method: client rate x server rate, and tau for adaptive methods.

        The paper's best point is the same run as `published`, so it runs once.
        """
        runs = self._grid(task, algorithm, self.scale.taus)
        if algorithm not in paper_settings(task).rates:
            return runs
        published = self.published(task, algorithm)
        return tuple(published if run.point_items == published.point_items else run for run in runs)

    def heat_map(self, task: str, algorithm: str) -> tuple[PlannedRun, ...]:
        """Return the part of the tuning grid that the heat maps show."""
        runs = self.sweep(task, algorithm)
        return tuple(run for run in runs if run.point.get("tau", HEAT_MAP_TAU) == HEAT_MAP_TAU)

    def decay_sweep(self, algorithm: str) -> tuple[PlannedRun, ...]:
        """Plan the tuning grid with exponential decay of the client rate."""
        decay = {"client.schedule": "staircase", "client.decay_rounds": self.scale.decay_rounds}
        return self._grid(DECAY_TASK, algorithm, self.scale.decay_taus, decay)

    def central_rates(self, optimizer: str) -> tuple[float, ...]:
        """Return the rates of centralized training: the client grid of the task, or a part of it."""
        return self.scale.rates(DECAY_TASK, paper_settings(DECAY_TASK).client_grid, CENTRAL_RATES[optimizer])

    @property
    def central_last_epochs(self) -> int:
        """The epochs whose training loss selects the rate of centralized training: the last tenth."""
        return max(1, self.scale.epochs // 10)

    def central_sweep(self, optimizer: str) -> tuple[PlannedRun, ...]:
        """Plan the grid of one optimizer on the union of all clients' data."""
        settings: dict[str, Any] = {
            "client.optimizer": optimizer,
            "rounds": self.scale.epochs,
            "eval.every": 1,
        }
        for key, value in VARIANTS[self.variant].get(optimizer, {}).items():
            if key != "first_step":  # the step count of a client optimizer starts at 1
                settings[f"client.{key}"] = value
        if self.scale.writers:
            available = dataset_sizes(self.source(DECAY_TASK)).train_clients
            settings["data.clients"] = min(self.scale.writers, available)
        rates = self.central_rates(optimizer)
        return tuple(self._run(DECAY_TASK, "centralized", {"client_lr": rate}, settings) for rate in rates)

    def _grid(
        self,
        task: str,
        algorithm: str,
        adaptive_taus: Callable[[str, float], tuple[float, ...]],
        settings: Mapping[str, Any] | None = None,
    ) -> tuple[PlannedRun, ...]:
        paper = paper_settings(task)
        best = paper.rates.get(algorithm, paper.rates["fedavg"])  # the paper prints no rates for SCAFFOLD
        grid = {
            "client_lr": self.scale.rates(task, paper.client_grid, float(best.client_lr)),
            "server_lr": self.scale.rates(task, paper.server_grid, float(best.server_lr)),
        }
        if algorithm in ADAPTIVE:
            assert best.tau is not None
            grid["tau"] = adaptive_taus(task, float(best.tau))
        return tuple(
            self._run(task, algorithm, dict(zip(grid, values, strict=True)), settings or {})
            for values in product(*grid.values())
        )

    def _run(
        self,
        task: str,
        algorithm: str,
        point: Mapping[str, float],
        extra: Mapping[str, Any],
        seed: int | None = None,
    ) -> PlannedRun:
        scale = self.scale
        every, last_every = scale.evaluation_intervals(task)
        settings: dict[str, Any] = {
            "rounds": scale.task_rounds(task),
            "seed": self.seeds[0] if seed is None else seed,
            "eval.sample": scale.eval_sample(task),
            "eval.every": every,
            "eval.last_every": last_every,
            "eval.final": "sample",
        }
        if algorithm != "centralized":
            settings |= {"variant": self.variant, "clients_per_round": scale.task_cohort(task)}
        if scale.steps:
            settings["client.steps"] = scale.steps
        settings |= extra
        if not scale.keep_checkpoints:
            settings |= {"checkpoint.every": settings["rounds"], "checkpoint.keep": 1}
        return PlannedRun(task, algorithm, tuple(point.items()), tuple(settings.items()))
