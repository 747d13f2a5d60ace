"""Tune algorithms: `fedopt.sweep`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedopt.algorithms import Algorithm, AlgorithmChoice
from fedopt.api.training import check_seeds, merge_settings, shows_progress
from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import ConfigError
from fedopt.formatting import NotebookDisplay, TextTable
from fedopt.references import find_reference
from fedopt.remote.location import local_path
from fedopt.runs.loggers import other_loggers
from fedopt.tasks import Task
from fedopt.tuning.command import sweep as run_sweep
from fedopt.tuning.grid import point_settings
from fedopt.tuning.request import EXECUTORS, SweepRequest
from fedopt.tuning.results import SweepResult
from fedopt.tuning.table import best_points, notes


@dataclass(frozen=True)
class BestTrial:
    """The best point of one algorithm.

    Attributes:
        settings: dotted keys, ready for `fedopt.run(config=...)`.
        score: mean of the selection criterion over seeds.
        value: mean of the task's metric over seeds.
        runs: one run directory for each seed.
    """

    settings: dict[str, Any]
    score: float
    value: float | None
    runs: list[Path]


@dataclass(frozen=True)
class TuningResult(NotebookDisplay):
    """The result of `fedopt.sweep`. `print(result)` and notebooks show the best point of each algorithm.

    Attributes:
        sweep: all points of the sweep with their scores.
    """

    sweep: SweepResult

    @property
    def best(self) -> dict[str, BestTrial]:
        """The best trial of each algorithm by name, without algorithms whose trials have all diverged."""
        best: dict[str, BestTrial] = {}
        for algorithm in self.sweep.algorithms:
            point = algorithm.best
            if point is not None and point.score is not None:
                value = None if point.value is None else point.value.mean
                paths = [trial.path for trial in point.trials]
                best[algorithm.algorithm] = BestTrial(
                    point_settings(point.point), point.score.mean, value, paths
                )
        return best

    @property
    def out(self) -> Path:
        """The directory of the sweep."""
        return self.sweep.out

    @property
    def report(self) -> Path:
        """The HTML page of the sweep."""
        return self.sweep.report

    def table(self) -> TextTable:
        """Return the best point of each algorithm as a table."""
        return best_points(self.sweep).text("\n".join(notes(self.sweep)))


def sweep(
    task: str | Task,
    algorithms: AlgorithmChoice | Sequence[AlgorithmChoice],
    grid: str | Mapping[str, Any] = "paper",
    *,
    rounds: int | None = None,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    config: Mapping[str, Any] | None = None,
    data: str | None = None,
    select: str = "train_loss",
    search: str = "grid",
    trials: int | None = None,
    keep: str = "best",
    executor: str | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    out: str | os.PathLike[str] | None = None,
    tensorboard: bool = False,
    log: Sequence[str] = (),
    progress: bool | None = None,
) -> TuningResult:
    """Tune algorithms over a grid. The same call resumes an interrupted sweep.

    Trials run in parallel if other processes can import the task and the algorithms: names, references such
    as "my_project.tasks:digits", and objects that are attributes of an imported module. A script needs the
    usual `if __name__ == "__main__":`. Objects of the main program or of a notebook run one after the other
    in this process.

    Args:
        task: the task, as in `fedopt.run`.
        algorithms: one algorithm or several: names, references, objects or functions.
        grid: "paper", a TOML file, text such as "client_lr=-2:0:0.5", or a mapping from axes to values.
            The axes client_lr, server_lr and tau are in log10; any configuration key, such as
            "client.epochs", is an axis with plain values.
        rounds: number of rounds of a trial; the task's own number by default.
        seed: the seed of all trials.
        seeds: several seeds for every point.
        config: configuration of all trials, with dotted keys.
        data: "synthetic", an imported dataset or its directory; for named tasks only.
        select: criterion for the best trial: "train_loss", as in the paper, or a metric.
        search: "grid", "halving" or "optuna".
        trials: number of trials per algorithm with search="optuna".
        keep: the trials whose checkpoints are kept: "best" or "all".
        executor: "vectorised" or "compiled" train trials together that differ only in client.lr, the server,
            seeds and `variant`. It suits small models (see docs/performance.md). "ray" runs trials on a Ray
            cluster; `out` must then be on a path that all nodes share. "auto" is "compiled" for small models
            and the default for others. By default, each trial runs on one core.
        workers: number of worker processes; one per core by default, and none with "vectorised".
        ray_address: "auto" or HOST:PORT of a Ray cluster.
        out: directory of the sweep; by default runs/TASK/sweep-HASH.
        tensorboard: the same as log=["tensorboard"].
        log: names of loggers: "tensorboard", "wandb", "mlflow".
        progress: whether to show progress; by default in a terminal and in a notebook.

    Returns:
        The best point of each algorithm, and all trials.

    Examples:
        >>> clients = {"a": (np.eye(2), [0, 1]), "b": (np.eye(2), [0, 1])}
        >>> loss = torch.nn.functional.cross_entropy
        >>> task = fedopt.own_task(torch.nn.Linear(2, 2), loss, clients, clients["a"])
        >>> tuned = fedopt.sweep(task, "fedavg", {"client_lr": [-3, 0]}, rounds=5, out="runs/sweep")
        >>> tuned.best["fedavg"].settings
        {'client.lr': 1.0}
    """
    check_seeds(seeds)
    settings = merge_settings(config, rounds=rounds, seed=seed)
    single_seed = settings.pop("seed", None)
    if seeds is not None and single_seed is not None:
        raise ConfigError("seed and seeds exclude each other; give one", keys=("seed",))
    is_single = isinstance(algorithms, str | Algorithm) or callable(algorithms)
    choices: list[AlgorithmChoice] = [algorithms] if is_single else list(algorithms)  # type: ignore[list-item,arg-type]
    request = SweepRequest(
        task=task,
        algorithms=choices,
        grid=grid,
        settings=settings,
        seeds=list(seeds) if seeds is not None else [single_seed or 0],
        data=data,
        select=select,
        search=search,
        trials=trials,
        keep=keep,
        tensorboard=tensorboard or "tensorboard" in log,
        log=other_loggers(log),
        executor=executor if executor in EXECUTORS else None,
    )
    if not request.is_importable:
        request = _by_reference(request)
    path = None if out is None else local_path(out, "out")
    options = ExecutorOptions(executor, workers, ray_address=ray_address)
    return TuningResult(run_sweep(request, options, path, quiet=not shows_progress(progress)))


def _by_reference(request: SweepRequest) -> SweepRequest:
    """Replace all objects by their references, if all of them have one."""
    task, *algorithms = (
        choice if isinstance(choice, str) else find_reference(choice)
        for choice in (request.task, *request.algorithms)
    )
    if task is None or None in algorithms:
        return request
    return request._replace(task=task, algorithms=[name for name in algorithms if name is not None])
