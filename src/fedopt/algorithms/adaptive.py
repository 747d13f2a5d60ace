"""The adaptive optimizers: Algorithm 2 (FedAdagrad, FedYogi, FedAdam) and two more of Section 2.

On the server, with client SGD, they are Algorithm 2 line by line (server.lr = eta, server.tau = tau):

    m_t = beta1 m_{t-1} + (1 - beta1) Delta_t
    v_t = v_{t-1} + Delta_t^2                                                 FedAdagrad
    v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2)           FedYogi
    v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2                               FedAdam
    x_{t+1} = x_t + eta m_t / (sqrt(v_t) + tau)

`initial_accumulator` is v_{-1}; None means tau^2, the smallest value that the algorithm allows. The
authors' code differs in three places, each an argument here (see docs/deviations.md): v_{-1} = 0, the
bias correction of Keras, and its step count at the first round.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import torch

from fedopt.algorithms.base import Still, Vector
from fedopt.algorithms.optimizers import Optimizer
from fedopt.algorithms.options import Count, Fraction, NonNegative, Positive


class Moments(NamedTuple):
    m: Vector  # first moment, m_{-1} = 0
    v: Vector  # second moment


def _adaptive(
    second_moment: Callable[[Vector, Vector], Vector],
    beta1: float,
    tau: float,
    initial_accumulator: float | None,
    correction: Callable[[int], float],
) -> Optimizer:
    def init(x: Vector) -> Moments:
        v = tau**2 if initial_accumulator is None else initial_accumulator
        return Moments(torch.zeros_like(x), torch.full_like(x, v))

    def update(x: Vector, delta: Vector, eta: float, t: int, state: Moments) -> tuple[Vector, Moments]:
        m, v = state
        m = beta1 * m + (1 - beta1) * delta  # m_t
        v = second_moment(v, delta**2)  # v_t: the one line in which the three differ
        x = x + (eta * correction(t)) * m / (v.sqrt() + tau)  # x_{t+1}
        return x, Moments(m, v)

    return Optimizer(Still(update), init)


def _no_correction(t: int) -> float:
    return 1.0


def _keras_correction(beta1: float, beta2: float, first_step: int) -> Callable[[int], float]:
    """Keras scales the rate by sqrt(1 - beta2^s) / (1 - beta1^s), s the step, and leaves tau unscaled."""

    def correction(t: int) -> float:
        s = t + first_step
        return sqrt(1 - beta2**s) / (1 - beta1**s)

    return correction


def adagrad(
    *, beta1: Fraction = 0.0, tau: Positive = 1e-3, initial_accumulator: NonNegative | None = None
) -> Optimizer:
    """v_t = v_{t-1} + Delta_t^2. The paper sets beta1 = 0 here."""
    return _adaptive(lambda v, delta2: v + delta2, beta1, tau, initial_accumulator, _no_correction)


def yogi(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
    bias_correction: bool = False,
    first_step: Count = 1,
) -> Optimizer:
    """v_t = v_{t-1} - (1 - beta2) Delta_t^2 sign(v_{t-1} - Delta_t^2)."""
    return _adaptive(
        lambda v, delta2: v - (1 - beta2) * delta2 * torch.sign(v - delta2),
        beta1,
        tau,
        initial_accumulator,
        _keras_correction(beta1, beta2, first_step) if bias_correction else _no_correction,
    )


def adam(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
    bias_correction: bool = False,
    first_step: Count = 1,
) -> Optimizer:
    """v_t = beta2 v_{t-1} + (1 - beta2) Delta_t^2."""
    return _adaptive(
        lambda v, delta2: beta2 * v + (1 - beta2) * delta2,
        beta1,
        tau,
        initial_accumulator,
        _keras_correction(beta1, beta2, first_step) if bias_correction else _no_correction,
    )


class AmsgradMoments(NamedTuple):
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
    """Adam whose denominator never shrinks (Reddi et al. 2018):

    vmax_t = max(vmax_{t-1}, v_t),    x_{t+1} = x_t + eta m_t / (sqrt(vmax_t) + tau)
    """

    def init(x: Vector) -> AmsgradMoments:
        v = torch.full_like(x, tau**2 if initial_accumulator is None else initial_accumulator)
        return AmsgradMoments(torch.zeros_like(x), v, v.clone())

    def update(
        x: Vector, delta: Vector, eta: float, t: int, state: AmsgradMoments
    ) -> tuple[Vector, AmsgradMoments]:
        m, v, v_max = state
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        v_max = torch.maximum(v_max, v)
        return x + eta * m / (v_max.sqrt() + tau), AmsgradMoments(m, v, v_max)

    return Optimizer(Still(update), init)


def adabound(
    *,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.99,
    tau: Positive = 1e-3,
    initial_accumulator: NonNegative | None = None,
    final_rate: Positive = 0.1,
    gamma: Positive = 1e-3,
) -> Optimizer:
    """Adam whose rate per coordinate is clipped to bounds that close in on `final_rate` (Luo et al. 2019):

    rate_t = clip(eta / (sqrt(v_t) + tau), final (1 - 1/(gamma s + 1)), final (1 + 1/(gamma s))),  s = t + 1
    """

    def init(x: Vector) -> Moments:
        v = tau**2 if initial_accumulator is None else initial_accumulator
        return Moments(torch.zeros_like(x), torch.full_like(x, v))

    def update(x: Vector, delta: Vector, eta: float, t: int, state: Moments) -> tuple[Vector, Moments]:
        m, v = state
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        low = final_rate * (1 - 1 / (gamma * (t + 1) + 1))
        high = final_rate * (1 + 1 / (gamma * (t + 1)))
        rate = (eta / (v.sqrt() + tau)).clamp(low, high)
        return x + rate * m, Moments(m, v)

    return Optimizer(Still(update), init)
