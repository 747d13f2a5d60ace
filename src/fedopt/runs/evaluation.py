"""`fedopt eval`: a run's model on every example of a split, and how its metric spreads over clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedopt.algorithms import build
from fedopt.api import load
from fedopt.data.store import open_store
from fedopt.data.store.split_alias import with_test_split
from fedopt.engine.evaluate import means, measure_clients
from fedopt.engine.executors import open_executor
from fedopt.engine.problem import Problem
from fedopt.engine.worker import single_thread
from fedopt.errors import unknown
from fedopt.formatting import metric_unit
from fedopt.runs.build_problem import problem_of
from fedopt.runs.config import Config
from fedopt.runs.metrics_log import finite
from fedopt.tasks import Task, find_task

PERCENTILES = (5, 25, 50, 75, 95)
SPLITS = ("test", "train")  # those that all data has


def evaluate(path: Path, split: str, executor: str, workers: int | None) -> dict[str, Any]:
    """Measure a run's newest model on all clients of `split`."""
    loaded = load(path)
    task = find_task(loaded.config.task)
    with _problem(task, loaded.config, split) as (problem, place_of_split):
        federation = problem.federation()
        clients = getattr(federation, place_of_split)
        with open_executor(executor, workers) as place, single_thread():
            place.load(problem, federation, clients.gather(np.arange(1)))
            parts = measure_clients(place, loaded.x, place_of_split, len(clients.ids))
    by_client = np.array([means([part])[task.metric] for part in parts])
    known = by_client[np.isfinite(by_client)]  # a client may have nothing that the metric counts
    return {
        "run": str(path),
        "round": loaded.round,
        "split": split,
        "data": loaded.config.data["source"],
        "clients": len(parts),
        "examples": sum(part.examples for part in parts),
        "metric": task.metric,
        **{name: finite(value) for name, value in means(parts).items()},
        "percentiles_over_clients": {
            str(q): float(np.percentile(known, q)) if len(known) else None for q in PERCENTILES
        },
    }


@contextmanager
def _problem(task: Task, config: Config, split: str) -> Iterator[tuple[Problem, str]]:
    """The problem to measure on, and under which name its federation has the split."""
    nothing_trained = partial(build, "fedavg", ("sgd", {}), ("sgd", {}), {})
    source = config.data["source"]
    if split in SPLITS:
        yield problem_of(task, config, nothing_trained), split
    elif source == "synthetic":
        raise unknown("split of synthetic data", split, SPLITS)
    else:
        with with_test_split(open_store(Path(source)), split) as directory:
            seen = config.model_copy(update={"data": {**config.data, "source": str(directory)}})
            yield problem_of(task, seen, nothing_trained), "test"


def print_evaluation(measured: Mapping[str, Any]) -> None:
    unit = metric_unit(measured["metric"])
    table = Table(
        title=f"{measured['run']}, round {measured['round']}, {measured['split']} split, "
        f"{measured['data']} data"
    )
    table.add_column("over")
    table.add_column(unit.name, justify="right")
    rows = {f"all {measured['examples']:,} examples": measured[measured["metric"]]}
    rows |= {f"clients, {q}th percentile": v for q, v in measured["percentiles_over_clients"].items()}
    for name, value in rows.items():
        table.add_row(name, "-" if value is None else unit.format(value))
    console = Console()
    console.print(table)
    loss = "not finite" if measured["loss"] is None else f"{measured['loss']:.4f}"
    console.print(f"loss {loss} over {measured['clients']:,} clients", highlight=False)
