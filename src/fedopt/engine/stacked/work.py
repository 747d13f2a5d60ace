"""The `Work` of a stack: the algorithm's client function runs on several clients at once, unchanged.

Every vector is a stack (clients, d), and the rate `eta_l` is a column (clients, 1). Clients may have
different numbers of steps. When the steps of a client are over, its gradient is zero, and its rate is zero
until the last step of the stack. `fast_paths.accepts_unequal_steps` tests whether this is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedopt.algorithms.base import Round, Vector
from fedopt.algorithms.optimizers import step
from fedopt.engine.stacked.batches import BlockBatches
from fedopt.engine.stacked.model import StackedBatch, StepResult
from fedopt.engine.stacked.steps import StackedSteps


class StackedWork:
    """The work of all clients of a stack in one round.

    Args:
        round: the round.
        rates: the client learning rate of each column, (columns, 1).
        batches: the batches of the local work.
        steps: computes gradients and steps.
        kept: the vectors that each client kept; None in its first round.
        full_batches: returns all batches in order, for `full_gradient`.
    """

    def __init__(
        self,
        round: Round,
        rates: Tensor,
        batches: BlockBatches,
        steps: StackedSteps,
        kept: Sequence[tuple[Vector, ...] | None],
        full_batches: Callable[[], BlockBatches],
    ) -> None:
        self._batches, self._full_batches = batches, full_batches
        self._compute = steps
        self._kept = kept
        self._losses: list[Tensor] = []
        self._errors: list[Tensor] = []
        self._rate = rates
        self.round = round._replace(eta_l=cast(Any, self._rate))

    @cached_property
    def _steps_taken(self) -> Tensor:
        return (self._batches.counts > 0).sum(0)

    @property
    def steps(self) -> Tensor:
        """The number of steps of each client, (columns, 1)."""
        # A column without a client takes no step; 1 avoids a division by zero.
        return self._steps_taken.clamp(min=1).to(self._rate)[:, None]

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
        has_equal_steps = bool((self._steps_taken == len(self._batches.counts)).all())
        for batch in self._batches.steps():
            if not has_equal_steps:  # in place, because the algorithm has read the rate before
                torch.where((batch.counts > 0)[:, None], rate, torch.zeros_like(rate), out=self._rate)
            yield batch
        self._rate.copy_(rate)

    def gradient(self, x: Vector, batch: StackedBatch) -> Vector:
        """Return the gradients, and record the losses."""
        return self._record(self._compute.gradient(x.contiguous(), batch))

    def descend(self, x_i: Vector, batch: StackedBatch, eta_l: Any, add: Vector | None = None) -> Vector:
        if add is None and self._compute.pads_batches:
            return self._record(self._compute.descend(x_i.contiguous(), batch, eta_l))
        g = self.gradient(x_i, batch)
        return step(x_i, -(g if add is None else g + add), eta_l)

    def delta(self, x_i: Vector, x: Vector) -> Vector:
        return x_i - x

    def _record(self, result: StepResult) -> Vector:
        self._losses.append(result.losses)
        if result.errors is not None:
            self._errors.append(result.errors)
        return result.value

    def full_gradient(self, x: Vector) -> Vector:
        """Return the mean of the gradients of all batches at `x`. It does not count as training."""
        recorded = len(self._losses)
        batches = self._full_batches()
        total = torch.zeros_like(x)
        for batch in batches.steps():
            total = total + self.gradient(x, batch)
        del self._losses[recorded:]
        return total / (batches.counts > 0).sum(0).clamp(min=1).to(x)[:, None]

    def loss_sums(self) -> NDArray[np.float64]:
        """Return the sum of the losses of each client over its processed examples."""
        counts = self._batches.counts.cpu().numpy().astype(np.float64)
        losses = torch.stack(self._losses).cpu().numpy()
        sums: NDArray[np.float64] = (losses * counts).sum(0)
        if not np.isfinite(sums).all():  # the loss of a padded step may not be finite
            sums = np.where(counts > 0, losses * counts, 0.0).sum(0)
        return sums

    def largest_error(self) -> float:
        """Return the largest relative difference between the losses of rows in a batch and of single rows."""
        return float(torch.stack(self._errors).max()) if self._errors else 0.0
