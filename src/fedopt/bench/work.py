"""The work that all sides do: one cohort with its data, a model to start from, and the paper's settings.

It is written to a directory as arrays and one JSON file, which every side reads. `cohort.npz` holds what a
peer trains on: inputs and targets, prepared and in the order of the engine's own first round, so that a
peer which takes its batches in order does the same steps. `raw.npz` holds the examples for our engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedopt import rng
from fedopt.algorithms.base import Vector
from fedopt.bench.products import multiply_adds
from fedopt.data import Arrays, Federation, Split
from fedopt.engine.problem import Problem
from fedopt.engine.worker import initial_vector
from fedopt.models.flat import Flat
from fedopt.runs.build_problem import problem_of
from fedopt.runs.config import resolve
from fedopt.tasks import TASKS

# Multiply-adds of a round, about a quarter of a minute on two cores: more are cut to fewer clients.
LIMIT = 1.2e12
SEED = 0


@dataclass(frozen=True)
class Work:
    """One task's round, ready for every side."""

    task: str
    directory: Path
    problem: Problem  # of our engine
    x: Vector  # where all sides start
    client_lr: float
    examples: tuple[int, ...]  # of each client
    steps: tuple[int, ...]
    paper_clients: int
    cut: str | None  # how the round is shorter than the paper's, if it is

    @property
    def multiply_adds(self) -> int:
        return multiply_adds(self.task, sum(self.examples))

    @property
    def epoch_batches(self) -> float:
        """Steps, a short batch counted by its examples."""
        return sum(self.examples) / self.problem.local.batch_size


def make_work(task: str, directory: Path, clients: int | None, steps: int | None) -> Work:
    """Choose the cohort of `task` and write it down.

    `clients` and `steps` (of each client) shorten the round; by default it is cut only beyond LIMIT.
    """
    config = resolve(TASKS[task], "fedavg", {"seed": SEED})
    problem = problem_of(TASKS[task], config)
    split = problem.federation().train
    batch = problem.local.batch_size
    paper_clients = config.clients_per_round
    most = steps * batch if steps else None
    wanted = min(clients or paper_clients, len(split.ids))
    chosen = rng.generator("bench", "cohort", task).choice(len(split.ids), size=wanted, replace=False)
    cohort: list[Arrays] = []
    for index in chosen:
        cohort.append(tuple(np.asarray(a)[:most] for a in split.client(int(index))))
        if not clients and multiply_adds(task, sum(len(a[0]) for a in cohort)) >= LIMIT:
            break
    names = [split.ids[int(index)] for index in chosen[: len(cohort)]]
    examples = tuple(len(arrays[0]) for arrays in cohort)
    x = initial_vector(problem)
    # One step of the paper's grid below its best rate: no side diverges on a cohort that is repeated.
    client_lr = config.client.lr / sqrt(10)
    directory.mkdir(parents=True, exist_ok=True)
    _write_arrays(directory / "raw.npz", cohort)
    np.save(directory / "x.npy", x.numpy())
    _write_arrays(
        directory / "cohort.npz", [_first_round(problem, n, a) for n, a in zip(names, cohort, strict=True)]
    )
    planned = tuple(problem.local.planned_steps(n) for n in examples)
    flat = Flat(problem.model())
    settings: dict[str, Any] = {
        "task": task,
        "batch_size": batch,
        "client_lr": client_lr,
        "server_lr": 1.0,
        "reduction": problem.reduction,
        "parameters": [[name, list(shape)] for name, shape in zip(flat.names, flat.shapes, strict=True)],
        "count": flat.d,
        "clients": [
            {"id": n, "examples": e, "steps": s} for n, e, s in zip(names, examples, planned, strict=True)
        ],
    }
    (directory / "work.json").write_text(json.dumps(settings, indent=1))
    opened: Callable[[], Federation] = partial(open_cohort, str(directory))
    cuts = []
    if len(cohort) != paper_clients:
        cuts.append(f"{len(cohort)} of {paper_clients} clients")
    if steps:
        cuts.append(f"at most {steps} steps a client")
    return Work(
        task=task,
        directory=directory,
        problem=replace(problem, federation=opened),
        x=x,
        client_lr=client_lr,
        examples=examples,
        steps=planned,
        paper_clients=paper_clients,
        cut=", ".join(cuts) or None,
    )


def _first_round(problem: Problem, client: str, arrays: Arrays) -> Arrays:
    """Inputs and targets of a client's first round, in the order in which the engine takes them."""
    order = rng.generator(problem.seed, "shuffle", 0, client, 0).permutation(len(arrays[0]))
    augment = rng.generator(problem.seed, "augment", 0, client, 0)
    size = problem.local.batch_size
    parts = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        parts.append(problem.prepare(tuple(torch.tensor(a[rows]) for a in arrays), augment))
    return tuple(torch.cat(column).numpy() for column in zip(*parts, strict=True))


def _write_arrays(file: Path, clients: list[Arrays]) -> None:
    columns: dict[str, NDArray[Any]] = {
        f"{place}_{column}": np.ascontiguousarray(a)
        for place, arrays in enumerate(clients)
        for column, a in enumerate(arrays)
    }
    with open(file, "wb") as out:
        np.savez(out, **columns)  # type: ignore[arg-type]  # numpy has options of its own there


@lru_cache(maxsize=1)
def _read_cohort(directory: str) -> tuple[list[str], list[Arrays]]:
    settings = json.loads((Path(directory) / "work.json").read_text())
    names = [client["id"] for client in settings["clients"]]
    with np.load(Path(directory) / "raw.npz", allow_pickle=False) as file:
        width = len(file.files) // len(names)
        cohort = [tuple(file[f"{place}_{c}"] for c in range(width)) for place in range(len(names))]
    return names, cohort


def _client(directory: str, index: int) -> Arrays:
    return _read_cohort(directory)[1][index]


def open_cohort(directory: str) -> Federation:
    """The cohort as a federation that has no other clients."""
    names, cohort = _read_cohort(directory)
    sizes = np.array([len(arrays[0]) for arrays in cohort], dtype=np.int64)
    split = Split(names, sizes, partial(_client, directory))
    return Federation(split, split, "synthetic")
