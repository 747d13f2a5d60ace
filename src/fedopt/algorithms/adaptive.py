"""The adaptive optimizers: Algorithm 2 (FedAdagrad, FedYogi, FedAdam) and two more from Section 2.

On the server, with client SGD, they are Algorithm 2 line by line (server.lr = eta, server.tau = tau):

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t
    v_t = v_{t-1} + Delta_t^2                                                 FedAdagrad
    v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2)           FedYogi
    v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2                               FedAdam
    x_{t+1} = x_t + eta m_t / (sqrt(v_t) + tau)

`initial_accumulator` is v_{-1}. None means tau^2, the smallest value that Algorithm 2 allows. The authors'
code differs in three points, which are arguments here (see docs/deviations.md): v_{-1} = 0, the bias
correction of Keras (`bias_correction`), and its step count in the first round (`first_step`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import torch

from fedopt.algorithms.base import Vector
from fedopt.algorithms.optimizers import Optimizer
from fedopt.algorithms.options import Count, Fraction, NonNegative, Positive


class Moments(NamedTuple):
    """The state of Algorithm 2 besides x."""

    m: Vector  # first moment, m_{-1} = 0
    v: Vector  # second moment


def _adaptive(
    second_moment: Callable[[Vector, Vector], Vector],
    beta1: float,
    tau: float,
    initial_accumulator: float | None,
    correction: Callable[[int], float] = lambda t: 1.0,
) -> Optimizer:
    """Build Algorithm 2's optimizer with the given line for v_t."""

    def update(x: Vector, delta: Vector, eta: float, t: int, state: Moments) -> tuple[Vector, Moments]:
        m, v = state
        m = beta1 * m + (1 - beta1) * delta  # m_t
        v = second_moment(v, delta**2)  # v_t: the line in which the three optimizers differ
        x = x + (eta * correction(t)) * m / (v.sqrt() + tau)  # x_{t+1}
        return x, Moments(m, v)

    return Optimizer(update, _initial_moments(tau, initial_accumulator))


def _initial_moments(tau: float, initial_accumulator: float | None) -> Callable[[Vector], Moments]:
    def init(x: Vector) -> Moments:
        v = tau**2 if initial_accumulator is None else initial_accumulator
        return Moments(torch.zeros_like(x), torch.full_like(x, v))

    return init


def adagrad(
    *, beta1: Fraction = 0.0, tau: Positive = 1e-3, initial_accumulator: NonNegative | None = None
) -> Optimizer:
    """Adagrad: v_t = v_{t-1} + Delta_t^2.

    Args:
        beta1: decay of m; 0 in the paper.
        tau: degree of adaptivity.
        initial_accumulator: v_{-1}; tau^2 by default.

    Returns:
        The optimizer. Its state is m and v.

    Examples:
        >>> optimizer = fedopt.algorithms.adagrad(tau=1.0)
        >>> x, delta = torch.zeros(1), torch.tensor([2.0])
        >>> x, state = optimizer.update(x, delta, 1.0, 0, optimizer.init(x))
        >>> x, state.v  # 2 / (sqrt(1 + 4) + 1)
        (tensor([0.6180]), tensor([5.]))
    """
    return _adaptive(lambda v, delta2: v + delta2, beta1, tau, initial_accumulator)


def _keras_correction(
    beta1: float, beta2: float, bias_correction: bool, first_step: int
) -> Callable[[int], float]:
    """Keras multiplies eta by sqrt(1 - beta2^s) / (1 - beta1^s) in step s. It does not scale tau."""

    def correction(t: int) -> float:
        s = t + first_step
        return sqrt(1 - beta2**s) / (1 - beta1**s) if bias_correction else 1.0

    return correction


def yogi(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
    bias_correction: bool = False,
    first_step: Count = 1,
) -> Optimizer:
    """Yogi: v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2).

    Args:
        beta1: decay of m.
        beta2: decay of v.
        tau: degree of adaptivity.
        initial_accumulator: v_{-1}; tau^2 by default.
        bias_correction: whether eta is corrected as in Keras.
        first_step: number s of the first step in the correction.

    Returns:
        The optimizer. Its state is m and v.

    Examples:
        >>> optimizer = fedopt.algorithms.yogi(beta1=0.0, tau=1.0)
        >>> x, delta = torch.zeros(1), torch.tensor([2.0])
        >>> x, state = optimizer.update(x, delta, 1.0, 0, optimizer.init(x))
        >>> state.v  # 1 + 0.01 * 4
        tensor([1.0400])
    """

    def second_moment(v: Vector, delta2: Vector) -> Vector:
        return v - (1 - beta2) * delta2 * torch.sign(v - delta2)

    correction = _keras_correction(beta1, beta2, bias_correction, first_step)
    return _adaptive(second_moment, beta1, tau, initial_accumulator, correction)


def adam(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
    bias_correction: bool = False,
    first_step: Count = 1,
) -> Optimizer:
    """Adam: v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2.

    Args:
        beta1: decay of m.
        beta2: decay of v.
        tau: degree of adaptivity.
        initial_accumulator: v_{-1}; tau^2 by default.
        bias_correction: whether eta is corrected as in Keras.
        first_step: number s of the first step in the correction.

    Returns:
        The optimizer. Its state is m and v.

    Examples:
        >>> optimizer = fedopt.algorithms.adam(beta1=0.0, tau=1.0)
        >>> x, delta = torch.zeros(1), torch.tensor([2.0])
        >>> x, state = optimizer.update(x, delta, 1.0, 0, optimizer.init(x))
        >>> state.v  # 0.99 + 0.01 * 4
        tensor([1.0300])
    """

    def second_moment(v: Vector, delta2: Vector) -> Vector:
        return beta2 * v + (1 - beta2) * delta2

    correction = _keras_correction(beta1, beta2, bias_correction, first_step)
    return _adaptive(second_moment, beta1, tau, initial_accumulator, correction)


class AmsgradMoments(NamedTuple):
    """The state of AMSGrad besides x."""

    m: Vector
    v: Vector
    v_max: Vector  # the largest v so far


def amsgrad(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
) -> Optimizer:
    """Adam with a denominator that never decreases (Reddi et al. 2018).

    vmax_t = max(vmax_{t-1}, v_t),    x_{t+1} = x_t + eta m_t / (sqrt(vmax_t) + tau)

    Args:
        beta1: decay of m.
        beta2: decay of v.
        tau: degree of adaptivity.
        initial_accumulator: v_{-1} and vmax_{-1}; tau^2 by default.

    Returns:
        The optimizer. Its state is m, v and vmax.

    Examples:
        >>> fedopt.algorithms.amsgrad(tau=0.5).init(torch.zeros(1)).v_max
        tensor([0.2500])
    """

    def init(x: Vector) -> AmsgradMoments:
        m, v = _initial_moments(tau, initial_accumulator)(x)
        return AmsgradMoments(m, v, v.clone())

    def update(
        x: Vector, delta: Vector, eta: float, t: int, state: AmsgradMoments
    ) -> tuple[Vector, AmsgradMoments]:
        m, v, v_max = state
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        v_max = torch.maximum(v_max, v)
        return x + eta * m / (v_max.sqrt() + tau), AmsgradMoments(m, v, v_max)

    return Optimizer(update, init)


def adabound(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
    final_rate: Positive = 0.1,
    gamma: Positive = 1e-3,
) -> Optimizer:
    """Adam with a rate per coordinate that is clipped to bounds converging to `final_rate` (Luo et al. 2019).

    rate_t = clip(eta / (sqrt(v_t) + tau), final (1 - 1/(gamma s + 1)), final (1 + 1/(gamma s))),  s = t + 1

    Args:
        beta1: decay of m.
        beta2: decay of v.
        tau: degree of adaptivity.
        initial_accumulator: v_{-1}; tau^2 by default.
        final_rate: the rate to which the bounds converge.
        gamma: speed at which they converge.

    Returns:
        The optimizer. Its state is m and v.

    Examples:
        >>> fedopt.algorithms.adabound(final_rate=0.01).init(torch.zeros(1)).m
        tensor([0.])
    """

    def update(x: Vector, delta: Vector, eta: float, t: int, state: Moments) -> tuple[Vector, Moments]:
        m, v = state
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        low = final_rate * (1 - 1 / (gamma * (t + 1) + 1))
        high = final_rate * (1 + 1 / (gamma * (t + 1)))
        rate = (eta / (v.sqrt() + tau)).clamp(low, high)
        return x + rate * m, Moments(m, v)

    return Optimizer(update, _initial_moments(tau, initial_accumulator))
