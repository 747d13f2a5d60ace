"""AdaAlter, local form (Xie et al. 2019): clients share an Adagrad-like accumulator through the server.

A client uses the accumulator B2 that it received for its steps. It updates a copy A2 and sends it back:

    x_i = x_i - eta_l g / sqrt(B2 + k epsilon^2)      k = 1, 2, ... the local step
    A2  = A2 + g^2                                    A2 = B2 at the start

The server averages both, and B2 becomes the average of A2. Both directions transfer twice as much as FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from fedopt.algorithms.base import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms.optimizers import step
from fedopt.algorithms.options import NonNegative, Positive


class AdaAlterState(NamedTuple):
    """x_t and the accumulator that clients share."""

    x: Vector
    B2: Vector


@dataclass(frozen=True)
class AdaAlterClient:
    """A client that scales its steps by the accumulator that it received."""

    epsilon: float
    coordinate_wise: ClassVar[bool] = True

    def __call__(self, work: Work, x: Vector, B2: Vector) -> ClientResult:
        x_i, A2 = x, B2
        for k, b in enumerate(work.batches(), start=1):
            g = work.gradient(x_i, b)
            x_i = step(x_i, -g / torch.sqrt(B2 + k * self.epsilon**2), work.round.eta_l)
            A2 = A2 + g**2
        return ClientResult((x_i - x, A2))


def adaalter(*, epsilon: Positive = 1.0, initial_accumulator: NonNegative = 1.0) -> Algorithm:
    """Build AdaAlter.

    Args:
        epsilon: its square is added in each local step; 1 in the authors' experiments.
        initial_accumulator: the first B2; 1 in the authors' experiments.

    Returns:
        The algorithm. Its state is x and B2.

    Examples:
        >>> fedopt.algorithms.adaalter().init(torch.zeros(1)).B2
        tensor([1.])
    """

    def init(x: Vector) -> AdaAlterState:
        return AdaAlterState(x, torch.full_like(x, initial_accumulator))

    def server(state: AdaAlterState, mean: tuple[Vector, ...], round: Round) -> AdaAlterState:
        delta, A2 = mean
        return AdaAlterState(step(state.x, delta, round.eta), A2)

    return Algorithm(init, AdaAlterClient(epsilon), server, sends=("x", "B2"), returns=("delta", "A2"))
