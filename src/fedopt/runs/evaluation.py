"""Evaluate a run's model on every example of a split, with percentiles over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedopt import rng
from fedopt.algorithms import Vector, build
from fedopt.data.store import open_store
from fedopt.data.store.split_alias import with_test_split
from fedopt.engine.evaluate import evaluate_clients, means
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.model_evaluation import EvaluationSums
from fedopt.engine.problem import Problem
from fedopt.engine.torch_state import single_thread
from fedopt.errors import ConfigError, unknown
from fedopt.formatting import ABSENT, NotebookDisplay, TextTable, count_noun, metric_unit
from fedopt.intervals import ratio_half_width
from fedopt.models.fixed_state import FixedState, fixed_tensors
from fedopt.remote.location import Location
from fedopt.runs.build_problem import build_problem
from fedopt.runs.checkpoint import read_rows
from fedopt.runs.client_table import read_statistics
from fedopt.runs.config import Config
from fedopt.runs.load import load_directory
from fedopt.runs.metrics_log import finite_or_none
from fedopt.runs.remote_run import downloaded
from fedopt.runs.result import RunResult
from fedopt.tasks import Task, find_task

PERCENTILES = (5, 25, 50, 75, 95)
_COMMON_SPLITS = ("test", "train")


@dataclass(frozen=True)
class Evaluation(NotebookDisplay):
    """A model on all examples of a split. `print(evaluation)` and notebooks show percentiles over clients.

    Attributes:
        run: the run directory, or the name of the run.
        round: number of completed rounds of the model.
        split: "test", "train" or another split.
        data: "synthetic", or the directory of the data.
        metric: the task's main metric.
        examples: number of examples.
        values: loss and metrics over all examples.
        by_client: the main metric of each client; None if it is undefined there.
        half_width: half-width of the 95 % interval of the main metric, for a sample of clients.
        population: number of clients of the split, if only a sample was evaluated.
    """

    run: str
    round: int
    split: str
    data: str
    metric: str
    examples: int
    values: dict[str, float | None]
    by_client: dict[str, float | None]
    half_width: float | None = None
    population: int | None = None

    @property
    def value(self) -> float | None:
        """The main metric over all examples."""
        return self.values[self.metric]

    @property
    def loss(self) -> float | None:
        """The loss over all examples."""
        return self.values["loss"]

    @property
    def percentiles(self) -> dict[int, float | None]:
        """Percentiles of the main metric over clients, without the clients where it is undefined."""
        defined = [value for value in self.by_client.values() if value is not None]
        return {q: float(np.percentile(defined, q)) if defined else None for q in PERCENTILES}

    def document(self) -> dict[str, Any]:
        """The JSON object of `fedopt eval --json`."""
        return {
            "run": self.run,
            "round": self.round,
            "split": self.split,
            "data": self.data,
            "clients": len(self.by_client),
            "examples": self.examples,
            "metric": self.metric,
            **self.values,
            "percentiles_over_clients": {str(q): value for q, value in self.percentiles.items()},
            **(
                {}
                if self.population is None
                else {"half_width": self.half_width, "clients_total": self.population}
            ),
        }

    def table(self) -> TextTable:
        """The metric over all examples and its percentiles over clients."""
        unit = metric_unit(self.metric)
        value = ABSENT if self.value is None else unit.format(self.value, self.half_width)
        rows = [["all examples" if self.population is None else "all examples, estimated", value]]
        for q, percentile in self.percentiles.items() if len(self.by_client) > 1 else ():
            name = "median client" if q == 50 else f"client at the {q}th percentile"
            rows.append([name, ABSENT if percentile is None else unit.format(percentile)])
        return TextTable(
            f"{self.run}, round {self.round}, {self.split} split, {self.data} data",
            ["", unit.name],
            rows,
            self._note(),
        )

    def _note(self) -> str:
        loss = "not finite" if self.loss is None else f"{self.loss:.4f}"
        examples = count_noun(self.examples, "example")
        if self.population is None:
            return f"loss {loss}; {examples} of {count_noun(len(self.by_client), 'client')}"
        return (
            f"loss {loss}; {examples} of {len(self.by_client):,} randomly chosen of {self.population:,} "
            f"clients; {'no' if self.half_width is None else '±: 95 %'} confidence interval"
        )


@dataclass(frozen=True)
class EvaluationOptions:
    """How a model is evaluated.

    `sample` is the number of randomly chosen clients; None, or more than there are, means all clients.
    `on_progress` is called with the number of evaluated clients and the number of all.
    """

    executor: ExecutorOptions = ExecutorOptions()
    sample: int | None = None
    on_progress: Callable[[int, int], None] = lambda done, total: None


def evaluate_run(
    run: Location,
    split: str = "test",
    options: EvaluationOptions = EvaluationOptions(),  # noqa: B008
    task: Task | None = None,
) -> Evaluation:
    """Measure the newest model of a run directory, which may be a URL, on the clients of `split`.

    `task` is needed if the run was started with a task object.
    """
    with downloaded(run, checkpoints=True, clients=split == "train") as path:
        loaded = load_directory(path, task)
        task = task or find_task(loaded.config.task)
        fixed = FixedState(fixed_tensors(loaded.model))
        with _open_split(task, loaded.config, split) as (problem, name):
            problem = replace(problem, fixed=fixed)
            own = _own_statistics(loaded.config.buffers, split, path, loaded.round)
            parts, population = _measure(problem, loaded.x, name, options, own)
    source = loaded.config.data["source"]
    return _evaluation(str(run), loaded.round, split, source, task.metric, parts, population)


def evaluate_result(
    result: RunResult,
    split: str = "test",
    options: EvaluationOptions = EvaluationOptions(),  # noqa: B008
) -> Evaluation:
    """Measure the model of a result in memory."""
    if split not in _COMMON_SPLITS:
        raise unknown(
            "split", split, _COMMON_SPLITS, also="another split of a run directory with imported data"
        )
    own = _own_statistics(result.problem.buffers, split, result.path, result.rounds)
    parts, population = _measure(result.problem, result.x, split, options, own)
    run = f"{result.task}, {result.algorithm}" if result.path is None else str(result.path)
    return _evaluation(run, result.rounds, split, result.data, result.metric, parts, population)


def _own_statistics(
    buffers: str, split: str, run: Path | None, rounds: int
) -> Callable[[int], Vector | None]:
    """With local running statistics, a train client that has taken part is measured with its own.

    All others, the test set and results without a run directory are measured with the mean.
    """
    if buffers == "local" and split == "train" and run is not None:
        return read_statistics(run, rounds, read_rows(run / "checkpoints", rounds))
    return lambda client: None


def _measure(
    problem: Problem,
    x: Vector,
    split: str,
    options: EvaluationOptions,
    own: Callable[[int], Vector | None],
) -> tuple[dict[str, EvaluationSums], int]:
    """Return the sums of each evaluated client by its id, and the number of clients of the split."""
    federation = problem.federation()
    clients = getattr(federation, split)
    population = len(clients.ids)
    chosen = list(range(population))
    if options.sample is not None and options.sample < 1:
        raise ConfigError(f"sample is {options.sample}; allowed: at least 1 client", keys=("sample",))
    if options.sample is not None and options.sample < population:
        chosen = choose_clients(population, options.sample)
    options.on_progress(0, len(chosen))
    with open_executor(options.executor) as opened, single_thread():
        opened.load(problem, federation, clients.gather(np.arange(1)))
        parts = evaluate_clients(
            opened,
            x,
            split,
            clients,
            own_statistics=own,
            clients=chosen,
            on_progress=lambda done: options.on_progress(done, len(chosen)),
        )
    return {str(clients.ids[at]): part for at, part in zip(chosen, parts, strict=True)}, population


def _evaluation(
    run: str,
    round: int,
    split: str,
    data: str,
    metric: str,
    parts: Mapping[str, EvaluationSums],
    population: int,
) -> Evaluation:
    is_sample = len(parts) < population
    pairs = [part.metrics.get(metric, (part.loss, part.examples)) for part in parts.values()]
    half_width = ratio_half_width(pairs, population) if is_sample else None
    return Evaluation(
        run,
        round,
        split,
        data,
        metric,
        sum(part.examples for part in parts.values()),
        {name: finite_or_none(value) for name, value in means(parts.values()).items()},
        {client: finite_or_none(means([part])[metric]) for client, part in parts.items()},
        half_width,
        population if is_sample else None,
    )


@contextmanager
def _open_split(task: Task, config: Config, split: str) -> Iterator[tuple[Problem, str]]:
    """The problem to measure on, and the name of the split in its federation."""
    no_training = partial(build, "fedavg", ("sgd", {}), ("sgd", {}), {})
    source = config.data["source"]
    if split in _COMMON_SPLITS:
        yield build_problem(task, config, no_training), split
    elif source in ("synthetic", "own"):
        raise unknown(f"split of {source} data", split, _COMMON_SPLITS)
    else:
        with with_test_split(open_store(source), split) as directory:
            aliased = config.model_copy(update={"data": {**config.data, "source": str(directory)}})
            yield build_problem(task, aliased, no_training), "test"


def choose_clients(population: int, count: int) -> list[int]:
    """Return `count` different clients in ascending order. Every call chooses the same ones."""
    draw = rng.generator("evaluated clients")
    return sorted(int(client) for client in draw.choice(population, size=count, replace=False))
