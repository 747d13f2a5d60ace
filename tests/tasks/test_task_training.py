"""Training of all tasks on synthetic data, and the options of losses and models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from fedopt.algorithms import Round
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.serial import Serial
from fedopt.engine.worker import Worker
from fedopt.errors import ConfigError
from fedopt.models.resnet import ResNet18
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.resolve import resolve
from fedopt.runs.result import RunResult
from fedopt.tasks.base import Task
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP
from fedopt.tasks.synthetic import SYNTHETIC_LR, SYNTHETIC_MLP

TASKS = (CIFAR10, CIFAR100, EMNIST_AE, EMNIST_CR, SHAKESPEARE, SO_LR, SO_NWP, SYNTHETIC_LR, SYNTHETIC_MLP)
EACH = pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])


PARAMETERS = {
    "cifar10": 11_181_642,
    "cifar100": 11_227_812,
    "emnist_ae": 2_837_314,
    "emnist_cr": 1_206_590,
    "shakespeare": 820_522,
    "so_lr": 5_000_500,
    "so_nwp": 4_050_748,
    "synthetic_lr": 60 * 10 + 10,
    "synthetic_mlp": 60 * 32 + 32 + 32 * 10 + 10,
}


def run(
    task: Task, settings: Mapping[str, Any], algorithm: str = "fedavg", source: str = "synthetic"
) -> RunResult:
    config = resolve(task, algorithm, settings, source)
    return execute(PreparedRun(config, build_problem(task, config)), Serial())


SHORT = {"data.clients": 2, "clients_per_round": 2, "rounds": 2, "eval.sample": 12, "client.steps": 2}
# The ResNet is expensive, so it runs one step of a small batch, with smaller rates.
SHORTER = {**SHORT, "data.clients": 1, "clients_per_round": 1, "client.steps": 1, "client.batch_size": 4}
RATE = {"cifar10": {"client.lr": 0.03}, "cifar100": {"client.lr": 0.03, "server.lr": 1.0}}


@EACH
def test_two_rounds_lower_the_loss(task: Task) -> None:
    """Both rounds have the same clients, so the second round starts with a lower loss."""
    settings = {**(SHORTER if task.name in RATE else SHORT), **RATE.get(task.name, {})}
    result = run(task, settings)
    assert result.params == PARAMETERS[task.name]
    first, second = (line["loss"] for line in result.train)
    assert second < first
    assert set(task.metrics) <= set(result.test[-1])
    assert result.value is not None and np.isfinite(result.value)


def test_loss_options_change_the_gradient() -> None:
    """Most of a short speech is padding, so a masked loss differs."""
    settings = {**SHORT, "rounds": 1, "client.steps": 1, "model.units": 8}
    plain, masked = (run(SHAKESPEARE, settings | extra) for extra in ({}, {"loss.masked": True}))
    assert plain.train[0]["loss"] != masked.train[0]["loss"]
    assert plain.x_sha256 != masked.x_sha256


def test_l2_penalty_changes_the_gradient_but_not_the_logged_loss() -> None:
    """The penalty is 1e-4 times the squared kernels, so its gradient is 2e-4 times the kernels."""
    problem = build_problem(CIFAR10, resolve(CIFAR10, "fedavg", {"model.l2": 1e-4}))
    worker = Worker(problem, problem.federation(), ())
    model, x = worker.flat.module, worker.flat.read()
    assert isinstance(model, ResNet18) and model.l2 == 1e-4
    images = (torch.randn(1, 3, 24, 24), torch.tensor([3]))
    gradients, losses = [], []
    for l2 in (1e-4, 0.0):
        model.l2 = l2
        work = ClientWork(worker.problem, worker.flat, (np.zeros(1),), "client", Round(0, 0.1, 1, 1, 1), None)
        gradients.append(work.gradient(x, images))
        losses.append(work.statistics().loss)
    assert losses[0] == losses[1]
    kernels = torch.cat([torch.full((p.numel(),), p.ndim > 1) for p in worker.flat.parameters])
    added = gradients[0] - gradients[1]
    torch.testing.assert_close(added[kernels], 2e-4 * x[kernels], rtol=0, atol=1e-6)
    assert not added[~kernels].any()  # norms have no penalty, and the last bias is zero


@pytest.mark.parametrize("task", [SHAKESPEARE, SO_NWP], ids=["shakespeare", "so_nwp"])
def test_text_tasks_count_tokens(task: Task) -> None:
    assert task.tokens is not None
    rows = task.federation("synthetic", clients=1).train.client(0)[0]
    targets = [token for line in rows.tolist() for token in line[1:]]
    assert task.tokens((torch.tensor(rows),)) == sum(token != 0 for token in targets)
    assert resolve(task, "fedavg", {"weighting": "tokens"}).weighting == "tokens"


@pytest.mark.parametrize("task", [CIFAR10, SO_LR], ids=["cifar10", "so_lr"])
def test_token_weighting_needs_a_text_task(task: Task) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(task, "fedavg", {"weighting": "tokens"})
    assert caught.value.keys == ("weighting",)


@pytest.mark.parametrize(
    ("task", "key", "value"),
    [
        (SO_LR, "data.bag", "printed"),
        (CIFAR100, "data.augment", "none"),
        (SHAKESPEARE, "loss.masked", "yes"),
        (CIFAR10, "model.l2", "small"),
    ],
)
def test_invalid_option_is_rejected(task: Task, key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(task, "fedavg", {key: value})
    assert caught.value.keys == (key,)
