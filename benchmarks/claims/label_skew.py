"""Real digits in which every client has two labels, for SCAFFOLD.

The clients of a round pull the model towards their own labels, so their drift is large. `few` and `many`
divide the same digits. `few_small` has the first clients of `many`: the drift of a client is the same, and
clients are revisited as often as those of `few`.
"""

from __future__ import annotations

from torch import nn

import fedopt
from claims.digit_data import load_digits
from fedopt.tasks.base import Task

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
    train, test = load_digits("train"), load_digits("test")
    parts = fedopt.partition.by_label(train[1], divided, LABELS_PER_CLIENT, seed=0)
    clients = fedopt.federate(train, parts[:used])
    return fedopt.own_task(_logistic_regression, nn.functional.cross_entropy, clients, test)


def _logistic_regression() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
