"""Evaluation of several clients in shared batches equals the evaluation of each client."""

from __future__ import annotations

from dataclasses import replace

import pytest
import small
import torch

from fedopt.engine.evaluate import evaluate_clients
from fedopt.engine.executors.serial import Serial
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.worker import SplitJob
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import Task


def measure(task: Task) -> tuple[list, list]:
    """The sums of all test clients: in shared batches, and one client at a time."""
    problem = build_problem(task, resolve(task, "fedavg", small.SETTINGS))
    federation = problem.federation()
    executor = Serial()
    executor.load(problem, federation, federation.test.client(0))
    x = initial_vector(problem)
    shared = evaluate_clients(executor, x, "test", federation.test)
    jobs = [SplitJob("test", index) for index in range(len(federation.test.ids))]
    return shared, [sums for sums, _ in executor.map(jobs, (x,))]


def assert_equal(shared: list, single: list) -> None:
    assert len(shared) == len(single) > 1
    for a, b in zip(shared, single, strict=True):
        assert a.examples == b.examples
        assert a.loss == pytest.approx(b.loss, rel=1e-6)
        assert a.metrics.keys() == b.metrics.keys()
        for name, pair in a.metrics.items():
            assert pair == pytest.approx(b.metrics[name], rel=1e-6)


def test_shared_batches_give_the_sums_of_each_client() -> None:
    assert_equal(*measure(small.SMALL))


def test_loss_that_is_a_mean_is_computed_client_by_client() -> None:
    def mean_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return small.SMALL.loss(outputs, targets).mean()

    assert_equal(*measure(replace(small.SMALL, loss=mean_loss)))
