"""CLIENTOPT and SERVEROPT: SGD and SGD with momentum. The adaptive ones are in `adaptive.py`.

Algorithm 1 hands an optimizer a gradient: CLIENTOPT(x, g, eta_l, t) and SERVEROPT(x, -Delta, eta, t).
Algorithm 2 writes its rules for Delta, the direction to move in. The rules here are Algorithm 2's, so
an optimizer takes the direction `delta`: the server passes Delta_t, a client passes -g.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fedopt.algorithms.base import Still, Vector
from fedopt.algorithms.options import Fraction

OptState = Any  # a NamedTuple of vectors; empty for SGD


def _stateless(x: Vector) -> OptState:
    return ()


class Optimizer(NamedTuple):
    """One of CLIENTOPT and SERVEROPT: `update(x, delta, eta, t, state) -> (x, state)`.

    `t` counts this optimizer's updates from 0: rounds on the server, local steps on a client.
    A new optimizer is one function:

    >>> def signed(x, delta, eta, t, state):
    ...     return x + eta * delta.sign(), state
    >>> x, _ = Optimizer(signed).update(torch.zeros(2), torch.tensor([3.0, -0.5]), 0.1, 0, ())
    >>> x
    tensor([ 0.1000, -0.1000])
    """

    update: Callable[[Vector, Vector, float, int, OptState], tuple[Vector, OptState]]
    init: Callable[[Vector], OptState] = _stateless


def symbols(optimizer: Optimizer) -> tuple[str, ...]:
    """The names of an optimizer's state vectors, such as ('m', 'v')."""
    state = optimizer.init(torch.zeros(1))
    return tuple(getattr(state, "_fields", ())) or tuple(f"s{i}" for i in range(len(state)))


def step(x: Vector, delta: Vector, eta: float) -> Vector:
    """x + eta delta, in one place (and one pass), so that algorithms which should agree to the bit do."""
    return torch.add(x, delta, alpha=eta)


def _sgd(x: Vector, delta: Vector, eta: float, t: int, state: OptState) -> tuple[Vector, OptState]:
    return step(x, delta, eta), state


_SGD = Still(_sgd)


def sgd() -> Optimizer:
    """x_{t+1} = x_t + eta Delta_t; with eta = 1 on the server, the original FedAvg."""
    return Optimizer(_SGD)


def is_sgd(optimizer: Optimizer) -> bool:
    """Whether it is `sgd` as it stands here, and nothing that somebody made of it."""
    return optimizer.update is _SGD


def still_with(optimizer: Optimizer, function: Callable[..., Any]) -> Callable[..., Any]:
    """A client that moves by `optimizer` alone, which is as still as that."""
    return Still(function) if isinstance(optimizer.update, Still) else function


class Momentum(NamedTuple):
    m: Vector


def sgdm(*, momentum: Fraction = 0.9, fold_rate: bool = False) -> Optimizer:
    """Heavy-ball momentum, undamped, m_{-1} = 0:

        m_t = momentum m_{t-1} + Delta_t,    x_{t+1} = x_t + eta m_t

    With `fold_rate` the rate is inside m (m_t = momentum m_{t-1} + eta_t Delta_t), as in Keras: the same
    numbers up to rounding as long as eta is constant.
    """

    def init(x: Vector) -> Momentum:
        return Momentum(torch.zeros_like(x))

    def update(x: Vector, delta: Vector, eta: float, t: int, state: Momentum) -> tuple[Vector, Momentum]:
        if fold_rate:
            m = momentum * state.m + eta * delta
            return x + m, Momentum(m)
        m = momentum * state.m + delta
        return step(x, m, eta), Momentum(m)

    return Optimizer(Still(update), init)
