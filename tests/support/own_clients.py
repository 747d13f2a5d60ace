"""Six clients with four numbers per example and three classes, small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from torch import nn

import fedopt
from fedopt.rng import generator
from fedopt.tasks import Task

# Six clients with four numbers an example and three classes; small enough to follow by hand.
FEATURES, CLASSES = 4, 3


SETTINGS = {"clients_per_round": 3, "client.batch_size": 5, "eval.every": 1}


def examples(name: str, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = generator("tests", "api", name)
    labels = rng.integers(0, CLASSES, n)
    points = rng.normal(size=(n, FEATURES)) + 2 * np.eye(CLASSES, FEATURES)[labels]
    return points.astype(np.float32), labels


IDS = [f"client{number}" for number in range(6)]


CLIENTS = {name: examples(name) for name in IDS}


TEST = examples("test", 60)


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def make_task(model: nn.Module | Callable[[], nn.Module] = linear, **changes: Any) -> Task:
    return fedopt.own_task(
        **{"model": model, "loss": F.cross_entropy, "clients": CLIENTS, "test": TEST, **changes}
    )


def train(task: Task, rounds: int = 2, **options: Any) -> fedopt.RunResult:
    config = {**SETTINGS, **options.pop("config", {})}
    return fedopt.run(task, rounds=rounds, config=config, **options)


def assert_refused(action: Callable[[], Any], error_type: type[fedopt.UserError], **fields: Any) -> None:
    """Assert that the action raises this error with these fields and a message of one line."""
    with pytest.raises(error_type) as error:
        action()
    assert "\n" not in str(error.value)
    assert {name: getattr(error.value, name) for name in fields} == fields
