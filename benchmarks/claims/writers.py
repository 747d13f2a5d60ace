"""Real digits by writer with a small network: a dense task on which many runs of full length are possible.

The paper does not use this network. A run of 1,500 rounds takes seconds; the paper's convolutional network
takes half an hour.
"""

from __future__ import annotations

from torch import nn

import fedopt
from claims.digit_data import load_digits, load_writers
from fedopt.tasks.base import Task

HIDDEN = 32


def writers() -> Task:
    """Return the task: 539 writers with 111 digits on average."""
    clients = fedopt.federate(load_digits("train"), load_writers())
    return fedopt.own_task(_network, nn.functional.cross_entropy, clients, load_digits("test"))


def _network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
