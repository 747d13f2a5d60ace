"""The request of a sweep: its options, their validation, and the grid of each algorithm."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.algorithms import AlgorithmChoice, algorithm_name
from fedopt.errors import ConfigError, unknown
from fedopt.references import file_name
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.runs.config import short_digest
from fedopt.runs.prepare import find_source
from fedopt.tasks import TASKS, Task, find_task, task_name
from fedopt.tuning.grid import (
    LOG10_AXES,
    Grid,
    check_axes,
    check_grid,
    paper_grid,
    read_grid,
    remove_foreign_axes,
    remove_unused_tau,
)
from fedopt.tuning.scores import check_selection
from fedopt.tuning.stacks import STACKING

SEARCHES = ("grid", "halving", "optuna")
EXECUTORS = ("serial", *STACKING)  # of one trial
KEEP = ("best", "all")  # the trials whose checkpoints are kept at the end


class SweepRequest(NamedTuple):
    """The options of `fedopt sweep`."""

    task: str | Task
    algorithms: Sequence[AlgorithmChoice]
    grid: str | Mapping[str, Any] = "paper"
    settings: Mapping[str, Any] = {}
    seeds: Sequence[int] = (0,)
    data: str | None = None  # "synthetic" (default), an imported dataset or its directory
    select: str = TRAIN_LOSS
    search: str = "grid"
    trials: int | None = None  # per algorithm, with --search optuna
    keep: str = "best"
    tensorboard: bool = False
    log: tuple[str, ...] = ()  # other loggers
    executor: str | None = None  # None: every trial runs on one core, without an executor of its own

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SweepRequest:
        """The request of a sweep.json. The names of objects are not resolved."""
        keys = ("task", "algorithms", "settings", "seeds", "select", "search", "keep", "tensorboard")
        values = {key: document[key] for key in keys}
        data = None if document["data"] in ("synthetic", "own") else document["data"]
        log = tuple(document.get("log", ()))
        return cls(
            **values,
            grid=document["given_grid"],
            data=data,
            trials=document["budget"],
            log=log,
            executor=document.get("executor"),
        )

    @property
    def task_name(self) -> str:
        return task_name(self.task)

    @property
    def algorithm_names(self) -> list[str]:
        return [algorithm_name(algorithm) for algorithm in self.algorithms]

    @property
    def is_importable(self) -> bool:
        """Whether another process can find the task and the algorithms by name."""
        return all(isinstance(choice, str) for choice in (self.task, *self.algorithms))

    @property
    def data_name(self) -> str:
        """The data as the user named it; "own" for a user-defined task."""
        if self.data is not None:
            return self.data
        return "synthetic" if self.task_name in TASKS else "own"

    @property
    def compared_metric(self) -> str:
        """The metric of heat maps and of the share of trials near the best.

        It is the task's metric if trials are selected by training loss, as in the paper's figures.
        """
        return find_task(self.task).metric if self.select == TRAIN_LOSS else self.select


def read_grids(request: SweepRequest) -> dict[str, Grid]:
    """Validate the request and return the grid of each algorithm."""
    _check_options(request)
    task = find_task(request.task)
    find_source(task, request.data)
    check_selection(task, request.select)
    given = _given_grid(request)
    grids: dict[str, Grid] = {}
    for name, algorithm in zip(request.algorithm_names, request.algorithms, strict=True):
        if given is None:
            grid = paper_grid(task, algorithm, request.settings)
        else:
            grid = remove_unused_tau(given, task, algorithm, request.settings)
            grid = remove_foreign_axes(grid, task, algorithm, request.algorithms)
        if not grid:
            raise ConfigError(
                f"the grid has only {', '.join(given or ())}, which {name} does not have; add client_lr or "
                f"server_lr, or leave {name} out",
                keys=[LOG10_AXES.get(axis, axis) for axis in given or ()],
            )
        check_grid(grid, request.settings)
        grids[name] = grid
    return grids


def _given_grid(request: SweepRequest) -> Grid | None:
    """The grid that the user has written; None for the paper's grid."""
    if isinstance(request.grid, str):
        return None if request.grid.strip() == "paper" else read_grid(request.grid)
    return check_axes(request.grid)


def _check_options(request: SweepRequest) -> None:
    names, search = request.algorithm_names, request.search
    find_task(request.task)
    if not names:
        raise ConfigError("no algorithm is given; name one, such as fedavg", keys=["algorithm"])
    if len(set(names)) < len(names):
        raise ConfigError("an algorithm is named twice; a sweep has one grid for each", keys=["algorithm"])
    if search not in SEARCHES:
        raise unknown("search", search, SEARCHES)
    if request.executor not in (None, *EXECUTORS):
        raise unknown("executor", str(request.executor), EXECUTORS)
    if request.keep not in KEEP:
        raise unknown("value of keep", request.keep, KEEP)
    if search != "grid" and len(request.seeds) > 1:
        raise ConfigError(
            f"several seeds cannot be combined with the search {search}; use the search grid or one seed",
            keys=["seeds"],
        )
    if request.trials is not None and (search != "optuna" or request.trials < 1):
        raise ConfigError("trials needs the search optuna and a number of at least 1", keys=["trials"])


def grid_notes(request: SweepRequest, grids: Mapping[str, Grid]) -> list[str]:
    """Return a note for each algorithm whose grid lacks an axis that the user gave."""
    notes = []
    for algorithm, grid in grids.items():
        missing = [axis for axis in _given_grid(request) or () if axis not in grid]
        if missing:
            points = math.prod(map(len, grid.values()))
            notes.append(
                f"{algorithm} has no {' and no '.join(missing)}, so its grid has the {points} points of "
                f"{' and '.join(grid)}"
            )
    return notes


def default_directory(request: SweepRequest, grids: Mapping[str, Grid], own: str = "") -> Path:
    """Return runs/TASK/sweep-HASH. The hash depends on `own`, and not on the number of rounds."""
    settings = {key: value for key, value in request.settings.items() if key != "rounds"}
    identity: list[Any] = [grids, settings, list(request.seeds), request.data_name]
    identity += [request.executor] if request.executor in STACKING else []  # they change results
    identity += [own] if own else []
    digest = short_digest(json.dumps(identity, sort_keys=True, default=str))
    return Path("runs") / file_name(request.task_name) / f"sweep-{digest}"
