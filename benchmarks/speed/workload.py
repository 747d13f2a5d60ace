"""The workload of all simulators: one cohort with its data, an initial model and settings.

It is written to a directory as arrays and one JSON file. `cohort.npz` is for the peers: prepared inputs and
targets in the order of the engine's first round, so that a peer without shuffling takes the same steps.
`raw.npz` holds the same examples unprepared, for fedopt's engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedopt import rng
from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation, Split
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.problem import Problem
from fedopt.models.flat import Flat
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import PAPER_TASKS, TASKS

from .matrix_products import count_multiply_adds

# Rounds with more multiply-adds get fewer clients. This many take about 15 seconds on two cores.
MAX_MULTIPLY_ADDS = 1.2e12
SEED = 0


@dataclass(frozen=True)
class WorkloadDefinition:
    """Task, settings and executors of a workload. The first executor gives its main numbers."""

    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None  # full batches per client; None: one epoch
    executors: tuple[str, ...] = ("processes",)


# Ten clients with ten batches of ten examples each: the duration of a round is mostly overhead.
_SMALL_SETTINGS = {"data.clients": 3000, "clients_per_round": 10, "client.batch_size": 10}
_SMALL_EXECUTORS = ("compiled", "vectorised", "processes", "serial")

WORKLOADS: Mapping[str, WorkloadDefinition] = {
    **{task: WorkloadDefinition(task) for task in PAPER_TASKS},
    "small_lr": WorkloadDefinition("synthetic_lr", _SMALL_SETTINGS, 10, _SMALL_EXECUTORS),
    "small_mlp": WorkloadDefinition("synthetic_mlp", _SMALL_SETTINGS, 10, _SMALL_EXECUTORS),
}


@dataclass(frozen=True)
class BenchmarkWorkload:
    """One round of one task: the cohort with its data, the initial model and the settings."""

    name: str
    task: str
    directory: Path
    problem: Problem  # for fedopt's engine
    x: Vector  # the initial model of all simulators
    client_lr: float
    examples: tuple[int, ...]  # per client
    steps: tuple[int, ...]  # per client
    full_clients: int  # clients of a round that is not cut
    cut: str | None  # how the round is shorter than its definition

    @property
    def multiply_adds(self) -> int:
        return count_multiply_adds(self.task, sum(self.examples))

    @property
    def full_batches(self) -> float:
        """Number of steps, with a short batch counted as a fraction of a full one."""
        return sum(self.examples) / self.problem.local.batch_size


def build_workload(
    name: str,
    directory: Path,
    clients: int | None,
    steps: int | None,
    settings: Mapping[str, Any] | None = None,
) -> BenchmarkWorkload:
    """Choose the cohort of the workload `name` and write its files to `directory`.

    `clients` and `steps` (per client) shorten the round. By default only rounds with more than
    `MAX_MULTIPLY_ADDS` are shortened. `settings` change the configuration.
    """
    definition = WORKLOADS[name]
    task = definition.task
    config = resolve(TASKS[task], "fedavg", {"seed": SEED, **definition.settings, **(settings or {})})
    problem = build_problem(TASKS[task], config)
    # One grid step below the best rate, so that repeated rounds on one cohort do not diverge.
    client_lr = config.client.lr / sqrt(10)
    names, cohort = _choose_cohort(definition, problem, config.clients_per_round, clients, steps)
    examples = tuple(len(arrays[0]) for arrays in cohort)
    planned_steps = tuple(problem.local.planned_steps(n) for n in examples)
    x = initial_vector(problem)
    flat = Flat(problem.model())
    document: dict[str, Any] = {
        "task": task,
        "batch_size": problem.local.batch_size,
        "client_lr": client_lr,
        "server_lr": 1.0,
        "reduction": problem.reduction,
        "parameters": [[name, list(shape)] for name, shape in zip(flat.names, flat.shapes, strict=True)],
        "count": flat.d,
        "clients": [
            {"id": name, "examples": n, "steps": k}
            for name, n, k in zip(names, examples, planned_steps, strict=True)
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "work.json").write_text(json.dumps(document, indent=1))
    np.save(directory / "x.npy", x.numpy())
    _write_arrays(directory / "raw.npz", cohort)
    prepared = [_prepare_first_round(problem, n, a) for n, a in zip(names, cohort, strict=True)]
    _write_arrays(directory / "cohort.npz", prepared)
    cuts = []
    if len(cohort) != config.clients_per_round:
        cuts.append(f"{len(cohort)} of {config.clients_per_round} clients")
    if steps:
        cuts.append(f"steps per client limited to {steps}")
    return BenchmarkWorkload(
        name=name,
        task=task,
        directory=directory,
        problem=replace(problem, federation=partial(open_cohort, str(directory))),
        x=x,
        client_lr=client_lr,
        examples=examples,
        steps=planned_steps,
        full_clients=config.clients_per_round,
        cut=", ".join(cuts) or None,
    )


def _choose_cohort(
    definition: WorkloadDefinition,
    problem: Problem,
    full_clients: int,
    clients: int | None,
    steps: int | None,
) -> tuple[list[str], list[Arrays]]:
    """Draw clients with enough examples and return their names and examples."""
    task, split, batch_size = definition.task, problem.federation().train, problem.local.batch_size
    enough = np.flatnonzero(split.sizes >= (definition.steps or 0) * batch_size)
    limits = [limit for limit in (steps, definition.steps) if limit]
    max_examples = min(limits) * batch_size if limits else None
    size = min(clients or full_clients, len(enough))
    drawn = rng.generator("bench", "cohort", task).choice(enough, size=size, replace=False)
    names: list[str] = []
    cohort: list[Arrays] = []
    examples = 0
    for index in drawn:
        arrays = tuple(np.asarray(a)[:max_examples] for a in split.client(int(index)))
        names.append(split.ids[int(index)])
        cohort.append(arrays)
        examples += len(arrays[0])
        if not clients and count_multiply_adds(task, examples) >= MAX_MULTIPLY_ADDS:
            break
    return names, cohort


def _prepare_first_round(problem: Problem, client: str, arrays: Arrays) -> Arrays:
    """Return a client's inputs and targets in the order of the engine's first round."""
    order = rng.generator(problem.seed, "shuffle", 0, client, 0).permutation(len(arrays[0]))
    augment = rng.generator(problem.seed, "augment", 0, client, 0)
    batch_size = problem.local.batch_size
    batches = []
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batches.append(problem.prepare(tuple(torch.tensor(a[rows]) for a in arrays), augment))
    return tuple(torch.cat(column).numpy() for column in zip(*batches, strict=True))


def _write_arrays(file: Path, clients: list[Arrays]) -> None:
    columns: dict[str, NDArray[Any]] = {
        f"{index}_{column}": np.ascontiguousarray(a)
        for index, arrays in enumerate(clients)
        for column, a in enumerate(arrays)
    }
    with open(file, "wb") as out:
        np.savez(out, **columns)  # type: ignore[arg-type]  # NumPy declares keyword options of its own


@lru_cache(maxsize=1)
def _read_cohort(directory: str) -> tuple[list[str], list[Arrays]]:
    settings = json.loads((Path(directory) / "work.json").read_text())
    names = [client["id"] for client in settings["clients"]]
    with np.load(Path(directory) / "raw.npz", allow_pickle=False) as file:
        columns = len(file.files) // len(names)
        cohort = [tuple(file[f"{index}_{c}"] for c in range(columns)) for index in range(len(names))]
    return names, cohort


def _read_client(directory: str, index: int) -> Arrays:
    return _read_cohort(directory)[1][index]


def open_cohort(directory: str) -> Federation:
    """Open the cohort as a federation without other clients."""
    names, cohort = _read_cohort(directory)
    sizes = np.array([len(arrays[0]) for arrays in cohort], dtype=np.int64)
    split = Split(names, sizes, partial(_read_client, directory))
    return Federation(split, split, "synthetic")
