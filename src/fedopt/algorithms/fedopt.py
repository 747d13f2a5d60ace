"""FedOpt, batched data: Algorithm 1 with E epochs over each client's batches and example weights.

FedAvg, FedAvgM, FedAdagrad, FedAdam and FedYogi are this with client SGD and their server optimizer.
The engine samples S and takes the mean Delta_t = sum_i (n_i / n) Delta_i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fedopt.algorithms.base import Algorithm, ClientResult, LocalSGD, Round, Still, Vector, Work
from fedopt.algorithms.optimizers import Optimizer, is_sgd, still_with


class FedOptState(NamedTuple):
    x: Vector
    opt: Any  # SERVEROPT's state: m, v, ...


def fedopt(client: Optimizer, server: Optimizer) -> Algorithm:
    """Algorithm 1 for any CLIENTOPT (fresh in every round) and any SERVEROPT."""

    def init(x: Vector) -> FedOptState:
        return FedOptState(x, server.init(x))

    def client_update(work: Work, x: Vector) -> ClientResult:
        eta_l = work.round.eta_l
        x_i, s = x, client.init(x)  # x_i^t = x_t
        for k, b in enumerate(work.batches()):  # for e = 1..E, for b in B_i
            g = work.gradient(x_i, b)  # g_i^t
            x_i, s = client.update(x_i, -g, eta_l, k, s)  # x_i^t = CLIENTOPT(x_i^t, g_i^t, eta_l, t)
        return ClientResult((x_i - x,))  # Delta_i^t

    def server_update(state: FedOptState, mean: tuple[Vector, ...], round: Round) -> FedOptState:
        (delta,) = mean
        return FedOptState(*server.update(state.x, delta, round.eta, round.t, state.opt))  # x_{t+1}

    local = LocalSGD(client_update) if is_sgd(client) else still_with(client, client_update)
    return Algorithm(init, local, Still(server_update) if is_sgd(server) else server_update)
