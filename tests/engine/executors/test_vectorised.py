"""Clients that train as one stack get the results of clients that train one after the other.

Comparisons of the mathematics use double precision: a few steps then differ by about 1e-14 of an update, and
a wrong row, mask or weight is visible. In single precision one step differs by about 1e-6. Later steps can
differ more, because a pooling layer with two nearly equal pixels passes the gradient to one or the other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from torch import Tensor, nn
from training import CASES, assert_same_cohort, task_problem, train_cohort

from fedopt.algorithms import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms import fedopt as fedopt_algorithm
from fedopt.algorithms.optimizers import sgd, step
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.worker import StackedWorker
from fedopt.engine.worker import ClientJob
from fedopt.errors import FedoptError
from fedopt.models.flat import Flat
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


@pytest.fixture
def double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow models in double precision."""
    monkeypatch.setattr(Flat, "_check_parameters", lambda self: None)


def compare(problem: Problem, clients: Any, lr: float, tolerance: float, **options: Any) -> Vectorised:
    """Check that the executor gives the results of `serial`, and return it."""
    vectorised = Vectorised(**options)
    expected, actual = (train_cohort(one, problem, clients, lr) for one in (Serial(), vectorised))
    assert_same_cohort(expected, actual, tolerance)
    assert float(actual.means[0].abs().max()) > 0
    return vectorised


@pytest.mark.parametrize("case", [name for name in CASES if name != "so_lr"])
def test_unequal_clients_of_every_task_equal_serial(case: str, double_precision: None) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, **settings)
    clients = (1, 2) if "cifar" in case else (0, 1, 2)
    assert compare(problem, clients, lr, 1e-11).fallback_reason == ""


def test_clients_with_sparse_rows_are_trained_one_after_the_other() -> None:
    executor = compare(task_problem("so_lr", double=False), (0, 1, 2), 100.0, 0.0)
    assert "rows of the model" in executor.fallback_reason


@pytest.mark.parametrize("name", [name for name in TASKS if name != "so_lr"])
def test_one_step_in_single_precision_differs_only_by_rounding(name: str) -> None:
    size = 1 if "cifar" in name else 3
    problem = task_problem(name, double=False, **{"client.steps": 1, "client.batch_size": size})
    assert compare(problem, (0, 1), CASES[name][1], 1e-5).fallback_reason == ""


def test_inputs_of_different_width_are_padded(double_precision: None) -> None:
    # SCAFFOLD trains all rows
    problem = task_problem("so_lr", "scaffold", **{"model.vocabulary": 1000})
    widths = {problem.federation().train.client(i)[0].shape[1] for i in range(3)}
    assert len(widths) > 1
    assert compare(problem, (0, 1, 2), 1.0, 1e-11).fallback_reason == ""
