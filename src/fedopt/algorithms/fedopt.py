"""FedOpt (Algorithm 1) on batched data, with E epochs over each client's batches and example weights.

FedAvg, FedAvgM, FedAdagrad, FedAdam and FedYogi are FedOpt with client SGD and their server optimizer.
The engine samples S and computes the mean Delta_t = sum_i (n_i / n) Delta_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedopt.algorithms.base import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms.optimizers import Optimizer, apply_update, is_coordinate_wise, local_step


class FedOptState(NamedTuple):
    """x_t and the state of SERVEROPT."""

    x: Vector
    opt: Any  # m, v, ...


@dataclass(frozen=True)
class FedOptClient:
    """The client of Algorithm 1. CLIENTOPT starts with a new state in every round."""

    optimizer: Optimizer  # CLIENTOPT

    def __call__(self, work: Work, x: Vector) -> ClientResult:
        eta_l = work.round.eta_l
        x_i, s = x, self.optimizer.init(x)  # x_i^t = x_t
        for k, b in enumerate(work.batches()):  # for e = 1..E, for b in B_i
            # x_i^t = CLIENTOPT(x_i^t, g_i^t, eta_l, t)
            x_i, s = local_step(work, self.optimizer, x_i, b, eta_l, k, s)
        return ClientResult((work.delta(x_i, x),))  # Delta_i^t

    @property
    def coordinate_wise(self) -> bool:
        return is_coordinate_wise(self.optimizer)

    sparse = coordinate_wise


@dataclass(frozen=True)
class FedOptServer:
    """The server of Algorithm 1."""

    optimizer: Optimizer  # SERVEROPT

    def init(self, x: Vector) -> FedOptState:
        return FedOptState(x, self.optimizer.init(x))

    def __call__(self, state: FedOptState, mean: tuple[Vector, ...], round: Round) -> FedOptState:
        (delta,) = mean  # Delta_t
        # x_{t+1} = SERVEROPT(x_t, -Delta_t, eta, t)
        return FedOptState(*apply_update(self.optimizer, state.x, delta, round.eta, round.t, state.opt))


def fedopt(client: Optimizer, server: Optimizer) -> Algorithm:
    """Build Algorithm 1 for any CLIENTOPT and any SERVEROPT.

    Args:
        client: CLIENTOPT.
        server: SERVEROPT.

    Returns:
        The algorithm. Its state is x and the state of SERVEROPT.

    Examples:
        >>> from fedopt import algorithms
        >>> fedadam = algorithms.fedopt(client=algorithms.sgd(), server=algorithms.adam(tau=0.01))
        >>> fedadam.init(torch.zeros(2)).opt.v
        tensor([1.0000e-04, 1.0000e-04])
    """
    update = FedOptServer(server)
    return Algorithm(update.init, FedOptClient(client), update)
