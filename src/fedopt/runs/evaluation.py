"""Evaluate a run's model on every example of a split, with percentiles over clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedopt.algorithms import build
from fedopt.data.store import open_store
from fedopt.data.store.split_alias import with_test_split
from fedopt.engine.evaluate import evaluate_clients, means
from fedopt.engine.executors import open_executor
from fedopt.engine.problem import Problem
from fedopt.engine.worker import single_thread
from fedopt.errors import unknown
from fedopt.models.fixed_state import FixedState, fixed_tensors
from fedopt.runs.build_problem import build_problem
from fedopt.runs.config import Config
from fedopt.runs.load import load
from fedopt.runs.metrics_log import finite_or_none
from fedopt.tasks import Task, find_task

PERCENTILES = (5, 25, 50, 75, 95)
_COMMON_SPLITS = ("test", "train")


def evaluate(
    run: Path, split: str = "test", executor: str = "serial", workers: int | None = None
) -> dict[str, Any]:
    """Measure the newest model of a run directory on all clients of `split`."""
    loaded = load(run)
    task = find_task(loaded.config.task)
    fixed = FixedState(fixed_tensors(loaded.model))
    with _open_split(task, loaded.config, split) as (split_problem, name):
        problem = replace(split_problem, fixed=fixed)
        federation = problem.federation()
        clients = getattr(federation, name)
        with open_executor(executor, workers) as opened, single_thread():
            opened.load(problem, federation, clients.gather(np.arange(1)))
            parts = evaluate_clients(opened, loaded.x, name, len(clients.ids))
    by_client = np.array([means([part])[task.metric] for part in parts])
    defined = by_client[np.isfinite(by_client)]  # some clients have no example that the metric counts
    return {
        "run": str(run),
        "round": loaded.round,
        "split": split,
        "data": loaded.config.data["source"],
        "clients": len(parts),
        "examples": sum(part.examples for part in parts),
        "metric": task.metric,
        **{name: finite_or_none(value) for name, value in means(parts).items()},
        "percentiles_over_clients": {
            str(q): float(np.percentile(defined, q)) if len(defined) else None for q in PERCENTILES
        },
    }


@contextmanager
def _open_split(task: Task, config: Config, split: str) -> Iterator[tuple[Problem, str]]:
    """The problem to measure on, and the name of the split in its federation."""
    no_training = partial(build, "fedavg", ("sgd", {}), ("sgd", {}), {})
    source = config.data["source"]
    if split in _COMMON_SPLITS:
        yield build_problem(task, config, no_training), split
    elif source == "synthetic":
        raise unknown("split of synthetic data", split, _COMMON_SPLITS)
    else:
        with with_test_split(open_store(Path(source)), split) as directory:
            aliased = config.model_copy(update={"data": {**config.data, "source": str(directory)}})
            yield build_problem(task, aliased, no_training), "test"
