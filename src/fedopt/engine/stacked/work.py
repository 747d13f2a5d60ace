"""The `Work` of a stack: the algorithm's client function runs on several clients at once, unchanged.

Every vector is a stack (clients, d), and the rate `eta_l` is a column (clients, 1). Clients may have
different numbers of steps. When the steps of a client are over, its gradient is zero, and its rate is zero
until the last step of the stack. `fast_paths.STACKED_CLIENTS` and `fast_paths.UNEQUAL_STEPS` state when this
is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from fedopt.algorithms.base import ClientResult, Round, Vector
from fedopt.engine.stacked.batches import BlockBatches
from fedopt.engine.stacked.model import StackedBatch, StepResult

Gradient = Callable[[Vector, StackedBatch], StepResult]
SgdStep = Callable[[Vector, StackedBatch, Tensor], StepResult]


class StackedWork:
    """The work of all clients of a stack in one round.

    Args:
        round: the round.
        rates: the client learning rate of each column, (columns, 1).
        batches: the batches of the local work.
        gradient: computes the gradients of a step.
        kept: the vectors that each client kept; None in its first round.
        full_batches: returns all batches in order, for `full_gradient`.
    """

    def __init__(
        self,
        round: Round,
        rates: Tensor,
        batches: BlockBatches,
        gradient: Gradient,
        kept: Sequence[tuple[Vector, ...] | None],
        full_batches: Callable[[], BlockBatches],
    ) -> None:
        self._batches, self._full_batches = batches, full_batches
        self._gradient = gradient
        self._kept = kept
        self._losses: list[Tensor] = []
        self._errors: list[Tensor] = []
        self._rate = rates
        self.round = round._replace(eta_l=cast(Any, self._rate))
        taken = (batches.counts > 0).sum(0)
        # A column without a client takes no step; 1 avoids a division by zero.
        self.steps = taken.clamp(min=1).to(rates)[:, None]
        self._has_equal_steps = bool((taken == len(batches.counts)).all())

    @property
    def kept(self) -> tuple[Vector, ...] | None:
        raise AssertionError("clients of a stack read their kept vectors with `kept_or`")

    def kept_or(self, *first: Vector) -> tuple[Vector, ...]:
        """Return stacks of the vectors that the clients kept, with rows of `first` in their first round."""
        if all(kept is None for kept in self._kept):
            return first
        rows = [
            [vector[i] if kept is None else kept[part].to(vector) for i, kept in enumerate(self._kept)]
            for part, vector in enumerate(first)
        ]
        missing = len(self._rate) - len(self._kept)
        return tuple(
            torch.stack(own + [vector[0]] * missing) for own, vector in zip(rows, first, strict=True)
        )

    def batches(self) -> Iterator[StackedBatch]:
        rate = self._rate.clone()
        for k in range(len(self._batches.counts)):
            batch = self._batches.step(k)
            if not self._has_equal_steps:  # in place, because the algorithm has read the rate before
                torch.where((batch.counts > 0)[:, None], rate, torch.zeros_like(rate), out=self._rate)
            yield batch
        self._rate.copy_(rate)

    def gradient(self, x: Vector, batch: StackedBatch) -> Vector:
        """Return the gradients, and record the losses."""
        value, losses, errors = self._gradient(x.contiguous(), batch)
        self._losses.append(losses)
        self._errors.append(errors)
        return value

    def sgd(self, x: Vector, step: SgdStep) -> ClientResult:
        """Run Algorithm 1's client with SGD, where `step` computes gradient and update together."""
        x_i = x.contiguous()
        for k in range(len(self._batches.counts)):
            x_i, losses, errors = step(x_i, self._batches.step(k), self._rate)
            self._losses.append(losses)
            self._errors.append(errors)
        return ClientResult((x_i - x,))  # Delta_i

    def full_gradient(self, x: Vector) -> Vector:
        """Return the mean of the gradients of all batches at `x`. It does not count as training."""
        recorded = len(self._losses)
        batches = self._full_batches()
        total = torch.zeros_like(x)
        for k in range(len(batches.counts)):
            total = total + self.gradient(x, batches.step(k))
        del self._losses[recorded:]
        return total / (batches.counts > 0).sum(0).clamp(min=1).to(x)[:, None]

    def loss_sums(self) -> list[float]:
        """Return the sum of the losses of each client over its processed examples."""
        counts = self._batches.counts
        losses = torch.stack(self._losses).double()
        return torch.where(counts > 0, losses * counts, 0.0).sum(0).tolist()

    def largest_error(self) -> float:
        """Return the largest relative difference between the losses of rows in a batch and of single rows."""
        return float(torch.stack(self._errors).max())
