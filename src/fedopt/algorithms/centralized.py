"""Centralized training, for the first row of the paper's learning-rate decay table.

The engine gives it a federation of one client, the shuffled union of all clients, and a round is one
epoch of it (or `client.steps` steps). The optimizer goes on from where the last round left it.
"""

from __future__ import annotations

from fedopt.algorithms.base import Algorithm, ClientResult, Vector, Work
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.optimizers import Optimizer, sgd, symbols


def centralized(client: Optimizer) -> Algorithm:
    """Any optimizer on the union of the data; what it keeps between rounds is its own state."""

    def client_update(work: Work, x: Vector) -> ClientResult:
        x_i, s = x, client.init(x)
        if work.kept:
            s = s._make(work.kept) if hasattr(s, "_make") else work.kept
        done = work.round.t * work.steps  # steps of the rounds before
        for k, b in enumerate(work.batches(), start=done):
            g = work.gradient(x_i, b)
            x_i, s = client.update(x_i, -g, work.round.eta_l, k, s)
        return ClientResult((x_i - x,), keeps=tuple(s))

    return fedopt(client, sgd())._replace(client=client_update, keeps=symbols(client))
