"""Real digits in which every client has two labels, for SCAFFOLD.

The clients of a round pull the model towards their own labels, so their drift is large. `few` and `many`
divide the same digits. `few_small` has the first clients of `many`: the drift of a client is the same, and
clients are revisited as often as those of `few`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

import fedopt
from fedopt.tasks.base import Task

STORE = Path("data/digits")  # relative to the working directory of the claims
FEW, MANY = 20, 2000
POPULATIONS = {  # clients and digits per client, by the name of the task
    "few": (FEW, 3000),
    "few_small": (FEW, 30),
    "many": (MANY, 30),
}
LABELS_PER_CLIENT = 2


def few() -> Task:
    """Return the task in which 20 clients have 3,000 digits each."""
    return _task(FEW, FEW)


def few_small() -> Task:
    """Return the task in which 20 clients have 30 digits each."""
    return _task(MANY, FEW)


def many() -> Task:
    """Return the task in which 2,000 clients have 30 digits each."""
    return _task(MANY, MANY)


def _task(divided: int, used: int) -> Task:
    """Divide the digits among clients, of which the first ones are used."""
    train, test = _digits("train"), _digits("test")
    parts = fedopt.partition.by_label(train[1], divided, LABELS_PER_CLIENT, seed=0)
    clients = fedopt.federate(train, parts[:used])
    return fedopt.own_task(_logistic_regression, nn.functional.cross_entropy, clients, test)


def _logistic_regression() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))


def _digits(split: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    pixels, labels = np.load(STORE / split / "pixels.npy"), np.load(STORE / split / "label.npy")
    return 1 - pixels.astype(np.float32) / 255, labels  # ink is 1
