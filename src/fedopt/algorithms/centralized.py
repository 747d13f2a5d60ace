"""Centralized training, for the first row of the paper's table on learning-rate decay.

The federation has one client, which holds the shuffled union of all clients. A round is one epoch (or
`client.steps` steps). The optimizer continues from its state after the last round.
"""

from __future__ import annotations

import torch

from fedopt.algorithms.base import Algorithm, ClientResult, Vector, Work
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.optimizers import Optimizer, apply_update, sgd
from fedopt.algorithms.state import flatten, unflatten


def centralized(client: Optimizer) -> Algorithm:
    """Build training with one optimizer on the union of the data.

    Args:
        client: the optimizer.

    Returns:
        The algorithm. Its client keeps the state of the optimizer.

    Examples:
        >>> from fedopt import algorithms
        >>> algorithms.centralized(algorithms.adam()).keeps
        ('m', 'v')
    """

    def client_update(work: Work, x: Vector) -> ClientResult:
        x_i, s = x, client.init(x)
        if work.kept:
            s = unflatten(s, dict(zip(names, work.kept, strict=True)))
        first = work.round.t * work.steps  # number of steps in earlier rounds
        for k, b in enumerate(work.batches(), start=first):
            g = work.gradient(x_i, b)
            x_i, s = apply_update(client, x_i, -g, work.round.eta_l, k, s)
        return ClientResult((x_i - x,), keeps=tuple(flatten(s).values()))

    names = tuple(flatten(client.init(torch.zeros(1))))  # of the state's vectors, such as m and v
    return fedopt(client, sgd())._replace(client=client_update, keeps=names)
