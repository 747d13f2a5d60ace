"""CLIENTOPT and SERVEROPT: SGD and SGD with momentum. The adaptive optimizers are in `adaptive.py`.

Algorithm 1 passes a gradient to an optimizer: CLIENTOPT(x, g, eta_l, t) and SERVEROPT(x, -Delta, eta, t).
Algorithm 2 states its rules for Delta, the direction of the move. The rules here follow Algorithm 2, so an
optimizer takes the direction `delta`: the server passes Delta_t, a client passes -g.

All optimizers of this package are coordinate-wise, and they leave x unchanged where `delta` is always zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fedopt.algorithms.base import Vector, Work
from fedopt.algorithms.options import Fraction
from fedopt.errors import ModelError

OptState = Any  # a NamedTuple of vectors; empty for SGD


def _no_state(x: Vector) -> OptState:
    return ()


class Optimizer(NamedTuple):
    """CLIENTOPT or SERVEROPT.

    Attributes:
        update: (x, delta, eta, t, state) -> (x, state). `t` counts the updates of this optimizer from 0:
            rounds on the server, local steps on a client.
        init: x -> the state before the first update; no state by default.

    Examples:
        >>> def signed(x, delta, eta, t, state):
        ...     return x + eta * delta.sign(), state
        >>> x, _ = fedopt.Optimizer(signed).update(torch.zeros(2), torch.tensor([3.0, -0.5]), 0.1, 0, ())
        >>> x
        tensor([ 0.1000, -0.1000])
    """

    update: Callable[[Vector, Vector, float, int, OptState], tuple[Vector, OptState]]
    init: Callable[[Vector], OptState] = _no_state


def apply_update(
    optimizer: Optimizer, x: Vector, delta: Vector, eta: float, t: int, state: OptState
) -> tuple[Vector, OptState]:
    """Return the optimizer's new x and state. All algorithms call this function."""
    result: Any = optimizer.update(x, delta, eta, t, state)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.Tensor):
        return result
    name = getattr(optimizer.update, "__name__", "update")
    raise ModelError(
        f"the optimizer's function {name!r} returned a {type(result).__name__}; it must return the pair "
        "(x, state): write `return x, state`",
        what="optimizer",
    )


def local_step(
    work: Work,
    optimizer: Optimizer,
    x_i: Vector,
    b: Any,
    eta_l: float,
    k: int,
    s: OptState,
    add: Vector | None = None,
) -> tuple[Vector, OptState]:
    """Return CLIENTOPT(x_i, g + add, eta_l, k) and its state, where g is the gradient of f_i(x_i; b)."""
    if optimizer == _SGD:
        return work.descend(x_i, b, eta_l, add), s
    g = work.gradient(x_i, b)
    return apply_update(optimizer, x_i, -(g if add is None else g + add), eta_l, k, s)


def is_coordinate_wise(optimizer: Optimizer) -> bool:
    """Return whether an optimizer is one of this package. A user's optimizer may use all coordinates."""
    modules = [getattr(f, "__globals__", {}).get("__name__", "") for f in (optimizer.update, optimizer.init)]
    return all(module.startswith("fedopt.algorithms.") for module in modules)


def step(x: Vector, delta: Vector, eta: float) -> Vector:
    """Return x + eta delta. All algorithms call this function, so equal steps are equal to the bit.

    For stacked vectors, eta is a column with one rate for each row.
    """
    if isinstance(eta, torch.Tensor):
        return torch.addcmul(x, delta, eta)
    return torch.add(x, delta, alpha=eta)


def _sgd_update(x: Vector, delta: Vector, eta: float, t: int, state: OptState) -> tuple[Vector, OptState]:
    return step(x, delta, eta), state


def sgd() -> Optimizer:
    """SGD: x_{t+1} = x_t + eta Delta_t. On the server with eta = 1, this is the original FedAvg.

    Returns:
        The optimizer. It has no state.

    Examples:
        >>> x, _ = fedopt.algorithms.sgd().update(torch.zeros(1), torch.tensor([2.0]), 0.5, 0, ())
        >>> x
        tensor([1.])
    """
    return _SGD


_SGD = Optimizer(_sgd_update)


class Momentum(NamedTuple):
    """The state of SGD with momentum."""

    m: Vector


def sgdm(*, momentum: Fraction = 0.9, fold_rate: bool = False) -> Optimizer:
    """Heavy-ball momentum without damping: m_t = momentum m_{t-1} + Delta_t, x_{t+1} = x_t + eta m_t.

    Args:
        momentum: the share of m_{t-1} that is kept; m_{-1} = 0.
        fold_rate: whether the rate is part of m, as in Keras: m_t = momentum m_{t-1} + eta_t Delta_t. While
            eta is constant, the results are equal up to rounding.

    Returns:
        The optimizer. Its state is m.

    Examples:
        >>> optimizer, x = fedopt.algorithms.sgdm(momentum=0.5), torch.zeros(1)
        >>> state = optimizer.init(x)
        >>> for t in range(2):
        ...     x, state = optimizer.update(x, torch.ones(1), 1.0, t, state)
        >>> x, state.m
        (tensor([2.5000]), tensor([1.5000]))
    """

    def init(x: Vector) -> Momentum:
        return Momentum(torch.zeros_like(x))

    def update(x: Vector, delta: Vector, eta: float, t: int, state: Momentum) -> tuple[Vector, Momentum]:
        if fold_rate:
            m = momentum * state.m + eta * delta
            return x + m, Momentum(m)
        m = momentum * state.m + delta
        return step(x, m, eta), Momentum(m)

    return Optimizer(update, init)
