"""Conditions under which the engine may compute a client in another way, with the same result."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from fedopt.algorithms.base import Algorithm, Round, Vector, declares
from fedopt.algorithms.optimizers import step
from fedopt.engine.problem import Problem
from fedopt.models.capabilities import has_gradient_hooks


def trains_sparse_rows(algorithm: Algorithm, problem: Problem, model: nn.Module) -> bool:
    """Return whether a client may train only the rows of the model that its examples touch.

    The task names these rows. The gradient of all others is zero, because there is no penalty and no gradient
    hook, and the client declares that it leaves such rows unchanged. The result is equal to the bit.
    """
    return (
        problem.touched is not None
        and problem.penalty is None
        and not has_gradient_hooks(model)
        and declares(algorithm.client, "sparse")
    )


class _IdleWork:
    """Two steps with gradients, and some with gradient and rate zero, for a vector of two numbers."""

    kept = None
    steps = 2

    def __init__(self, idle_steps: int) -> None:
        self._rate = torch.full((1, 1), 0.1)
        self.round = Round(0, self._rate, 1.0, 1, 1)  # type: ignore[arg-type]
        self._idle_steps = idle_steps

    def kept_or(self, *first: Vector) -> tuple[Vector, ...]:
        return first

    def batches(self) -> Iterator[Vector]:
        yield torch.tensor([[0.5, -2.0]])
        yield torch.tensor([[1.0, 0.25]])
        rate = self._rate.clone()
        for _ in range(self._idle_steps):
            self._rate.zero_()
            yield torch.zeros(1, 2)
        self._rate.copy_(rate)

    def gradient(self, x: Vector, batch: Vector) -> Vector:
        return batch

    def descend(self, x_i: Vector, batch: Vector, eta_l: float, add: Vector | None = None) -> Vector:
        return step(x_i, -(batch if add is None else batch + add), eta_l)

    def delta(self, x_i: Vector, x: Vector) -> Vector:
        return x_i - x

    def full_gradient(self, x: Vector) -> Vector:
        return torch.ones_like(x)


def accepts_unequal_steps(algorithm: Algorithm) -> bool:
    """Return whether stacked clients may have different numbers of steps.

    A step with gradient and rate zero must not change the client's result. The client is run with and without
    such steps.
    """
    count = len(algorithm.sends)
    sent = ([torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.25]])] * count)[:count]
    one, other = (algorithm.client(_IdleWork(idle), *sent) for idle in (0, 2))
    pairs = zip(one.returns + one.keeps, other.returns + other.keeps, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
