"""FedProx (Li et al. 2018): FedOpt with a proximal term that holds a client near the server's model."""

from __future__ import annotations

from fedopt.algorithms.base import Algorithm, ClientResult, Vector, Work
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.optimizers import Optimizer, still_with
from fedopt.algorithms.options import NonNegative


def fedprox(client: Optimizer, server: Optimizer, *, mu: NonNegative = 0.01) -> Algorithm:
    """The client descends f_i(x_i; b) + (mu / 2) |x_i - x|^2, whose gradient adds mu (x_i - x)."""

    def client_update(work: Work, x: Vector) -> ClientResult:
        eta_l = work.round.eta_l
        x_i, s = x, client.init(x)
        for k, b in enumerate(work.batches()):
            g = work.gradient(x_i, b) + mu * (x_i - x)
            x_i, s = client.update(x_i, -g, eta_l, k, s)
        return ClientResult((x_i - x,))

    return fedopt(client, server)._replace(client=still_with(client, client_update))
