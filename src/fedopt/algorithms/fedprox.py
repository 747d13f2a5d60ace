"""FedProx (Li et al. 2018): FedOpt with a proximal term that keeps a client close to the server's model."""

from __future__ import annotations

from dataclasses import dataclass

from fedopt.algorithms.base import Algorithm, ClientResult, Vector, Work
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.optimizers import Optimizer, is_coordinate_wise, local_step
from fedopt.algorithms.options import NonNegative


@dataclass(frozen=True)
class FedProxClient:
    """A client that minimises f_i(x_i; b) + (mu / 2) |x_i - x|^2. The second term adds mu (x_i - x) to g."""

    optimizer: Optimizer  # CLIENTOPT
    mu: float

    def __call__(self, work: Work, x: Vector) -> ClientResult:
        eta_l = work.round.eta_l
        x_i, s = x, self.optimizer.init(x)
        for k, b in enumerate(work.batches()):
            x_i, s = local_step(work, self.optimizer, x_i, b, eta_l, k, s, add=self.mu * (x_i - x))
        return ClientResult((work.delta(x_i, x),))

    @property
    def coordinate_wise(self) -> bool:
        return is_coordinate_wise(self.optimizer)

    sparse = coordinate_wise


def fedprox(client: Optimizer, server: Optimizer, *, mu: NonNegative = 0.01) -> Algorithm:
    """Build FedOpt with the proximal term on the clients.

    Args:
        client: CLIENTOPT.
        server: SERVEROPT.
        mu: weight of the proximal term; 0 is FedOpt.

    Returns:
        The algorithm. Its state is that of FedOpt.

    Examples:
        >>> from fedopt import algorithms
        >>> algorithms.fedprox(algorithms.sgd(), algorithms.sgd(), mu=0.1).client.mu
        0.1
    """
    return fedopt(client, server)._replace(client=FedProxClient(client, mu))
