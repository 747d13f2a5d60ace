"""Train single clients of any task on any executor, and compare the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from fedopt.algorithms import Round, Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.aggregate import BlockedMean
from fedopt.engine.executors.base import Executor
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, ClientReport
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

SIZES = (7, 5, 3)  # examples of the three clients: with batches of 3, the last ones have 1, 2 and 3


def _first(examples: Any, index: int) -> Arrays:
    return tuple(a[: SIZES[index]] for a in examples(index))


def _few(open_federation: Any) -> Federation:
    """Keep the first examples of a task's first clients."""
    federation: Federation = open_federation()
    train = replace(
        federation.train,
        ids=federation.train.ids[: len(SIZES)],
        sizes=np.array(SIZES),
        examples=partial(_first, federation.train.examples),
    )
    return federation._replace(train=train)


def _double(prepare: Any, examples: Any, rng: Any) -> tuple[Tensor, ...]:
    return tuple(a.double() if a.is_floating_point() else a for a in prepare(examples, rng))


def task_problem(name: str, algorithm: str = "fedavg", double: bool = True, **settings: Any) -> Problem:
    """Build a problem with three small clients of a task, by default in double precision."""
    config = resolve(TASKS[name], algorithm, {"client.batch_size": 3} | settings)
    problem = build_problem(TASKS[name], config)
    problem = replace(problem, federation=partial(_few, problem.federation))
    if double:
        model, prepare = problem.model, problem.prepare
        problem = replace(problem, model=lambda: model().double(), prepare=partial(_double, prepare))
    return problem


Trained = list[tuple[ClientReport, tuple[Vector, ...]]]


def train_clients(
    executor: Executor, problem: Problem, clients: Sequence[int], lr: float, t: int = 0
) -> Trained:
    """Train each client from x_0 and return the reports with copies of the vectors."""
    algorithm = problem.algorithm()
    sent = algorithm.sent(algorithm.init(initial_vector(problem)))
    executor.load(problem, problem.federation(), ())
    jobs = [ClientJob(Round(t, lr, 1.0, len(clients), 40), client) for client in clients]
    return [(report, tuple(v.clone() for v in vectors)) for report, vectors in executor.map(jobs, sent)]


def assert_same(expected: Trained, actual: Trained, tolerance: float) -> None:
    """Compare all numbers of all clients; vectors up to `tolerance` times their largest element."""
    assert len(expected) == len(actual)
    for (one, vectors), (other, others) in zip(expected, actual, strict=True):
        assert one._replace(loss=0.0, rows=None) == other._replace(loss=0.0, rows=None)
        assert one.loss == pytest.approx(other.loss, rel=tolerance, nan_ok=True)
        assert (one.rows is None) == (other.rows is None)
        assert one.rows is None or other.rows is None or torch.equal(one.rows.rows, other.rows.rows)
        for v, w in zip(vectors, others, strict=True):
            assert v.shape == w.shape
            if one.finite:
                assert float((v - w).abs().max()) <= tolerance * float(v.abs().max())


class TrainedCohort(NamedTuple):
    """The clients of a round: their reports, the means of what they return, and what they keep."""

    reports: list[ClientReport]
    means: tuple[Vector, ...]
    kept: dict[int, tuple[Vector, ...]]


def train_cohort(
    executor: Executor,
    problem: Problem,
    clients: Sequence[int],
    lr: float,
    kept: Mapping[int, Any] | None = None,
) -> TrainedCohort:
    """Train clients from x_0 in blocks."""
    algorithm = problem.algorithm()
    sent = algorithm.sent(algorithm.init(initial_vector(problem)))
    executor.load(problem, problem.federation(), ())
    jobs = [ClientJob(Round(0, lr, 1.0, len(clients), 40), client) for client in clients]
    mean, result = BlockedMean(), TrainedCohort([], (), {})
    for block in executor.train(jobs, sent, (kept or {}).get):
        mean.add_block(block.total)
        result.reports.extend(block.reports)
        result.kept.update(block.kept)
    return result._replace(means=mean.value() or ())


def assert_same_cohort(expected: TrainedCohort, actual: TrainedCohort, tolerance: float) -> None:
    """Compare all numbers; vectors up to `tolerance` times their largest element."""
    for one, other in zip(expected.reports, actual.reports, strict=True):
        assert one._replace(loss=0.0, rows=None) == other._replace(loss=0.0, rows=None)
        assert one.loss == pytest.approx(other.loss, rel=tolerance, nan_ok=True)
    assert expected.kept.keys() == actual.kept.keys()
    pairs = [(expected.means, actual.means), *((v, actual.kept[i]) for i, v in expected.kept.items())]
    for ours, theirs in pairs:
        for v, w in zip(ours, theirs, strict=True):
            assert v.shape == w.shape
            assert float((v - w).abs().max()) <= tolerance * float(v.abs().max())


# Each task with a client rate at which its steps are large compared with the rounding of x, and its settings.
# Layers have fewer units where a step would take seconds.
CASES: dict[str, tuple[str, float, dict[str, Any]]] = {
    "emnist_cr": ("emnist_cr", 0.1, {}),
    "emnist_ae": ("emnist_ae", 10.0, {"client.epochs": 2}),
    "so_lr": ("so_lr", 100.0, {"client.epochs": 2}),
    "so_nwp": ("so_nwp", 0.3, {"weighting": "tokens", "model.units": 50}),
    "shakespeare": ("shakespeare", 1.0, {"client.drop_last": True, "model.units": 50}),
    # the loss of a batch is one number, so batches cannot be padded
    "shakespeare masked": ("shakespeare", 1.0, {"loss.masked": True, "model.units": 50}),
    "cifar10": ("cifar10", 0.03, {"model.l2": 1e-4, "client.batch_size": 2, "client.steps": 2}),
    "cifar100": ("cifar100", 0.1, {"client.batch_size": 1, "client.steps": 1}),
    "synthetic_lr": ("synthetic_lr", 0.03, {"client.steps": 7}),
    "synthetic_mlp": ("synthetic_mlp", 0.03, {"client.steps": 7}),
}
