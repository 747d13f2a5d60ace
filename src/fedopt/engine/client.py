"""A client at work: its batches, its gradient, and the books it keeps of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedopt import rng
from fedopt.algorithms.base import Round, Vector
from fedopt.data import Arrays
from fedopt.engine.problem import Problem
from fedopt.models.flat import Flat
from fedopt.models.sparse_rows import Part
from fedopt.tasks.base import Batch

_AHEAD, _AHEAD_BYTES = 8, 2 << 20  # batches that are prepared at a time, at most


def tensors(arrays: Arrays, rows: np.ndarray | slice) -> tuple[Tensor, ...]:
    """Rows of each array in fresh memory of torch's own, whose alignment does not vary."""
    return tuple(torch.tensor(a[rows]) for a in arrays)


class Books(NamedTuple):
    """What a client did, in numbers."""

    steps: int
    examples: int  # processed, epochs counted
    loss: float  # sum over the processed examples, at the time each was processed


class ClientWork:
    """The `Work` of one client in one round (see `algorithms.base`)."""

    def __init__(
        self,
        problem: Problem,
        flat: Flat,
        arrays: Arrays,
        client: str,
        round: Round,
        kept: tuple[Vector, ...] | None,
        part: Part | None = None,
    ) -> None:
        self.round = round
        self.kept = kept
        self.room: Vector | None = None  # memory for x_i, if somebody has some
        self.steps = problem.local.planned_steps(len(arrays[0]))
        self._problem = problem
        self._flat = flat
        self._part = part  # of the model, on which the client works; None: the whole
        self._arrays = arrays
        self._client = client
        self._losses: list[tuple[int, Tensor]] = []  # read at the end: .item() in the loop would wait

    def batches(self) -> Iterator[Batch]:
        """E epochs over the shuffled batches, or K steps, beginning a new epoch when one is used up."""
        plan, ahead = self._plan(), 1
        # Small ones a few at a time: between two steps, each would find its code gone from the cache.
        while batches := [self._batch(*rows) for rows in islice(plan, ahead)]:
            yield from batches
            size = sum(part.nbytes for part in batches[0])
            ahead = min(_AHEAD, max(1, _AHEAD_BYTES // max(1, size)))

    def _plan(self) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
        """The rows of each batch, with what its examples are augmented by."""
        local, n, done = self._problem.local, len(self._arrays[0]), 0
        epoch = 0
        while done < self.steps:
            order = self._rng("shuffle", epoch).permutation(n)
            augment = self._rng("augment", epoch)
            for start in range(0, local.batches_per_epoch(n) * local.batch_size, local.batch_size):
                if done == self.steps:
                    return
                yield order[start : start + local.batch_size], augment
                done += 1
            epoch += 1

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        """The gradient of the batch's loss at `x`, flat; the loss is noted in the books."""
        self._flat.bind(x, self._part)
        with self._problem.profile("pass", self.round.t):
            gradients = torch.autograd.grad(
                self._objective(batch), self._flat.parameters, materialize_grads=True
            )
        return torch.cat([g.reshape(-1) for g in gradients])

    def descend(self, x_i: Vector) -> None:
        """SGD at the round's rate over all batches, in place on `x_i`."""
        self._flat.bind(x_i, self._part)
        parameters, eta_l = self._flat.parameters, self.round.eta_l
        with self._flat.descending(eta_l if self._problem.penalty is None else None):
            for batch in self.batches():
                with self._problem.profile("pass", self.round.t):
                    gradients = torch.autograd.grad(self._objective(batch), parameters, allow_unused=True)
                moved = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
                with torch.no_grad():
                    for p, g in moved:
                        p.add_(g, alpha=-eta_l)

    def _objective(self, batch: Batch) -> Tensor:
        """What the model is trained for on a batch, where it is bound."""
        inputs, targets = batch
        losses = self._problem.loss(self._flat.module(inputs), targets)
        n = len(targets)
        mean = losses.mean() if losses.ndim else losses
        objective = mean * n if self._problem.reduction == "sum" else mean
        if self._problem.penalty is not None:
            objective = objective + self._problem.penalty(self._flat.module)
        self._losses.append((n, mean.detach()))
        return objective

    def full_gradient(self, x: Vector) -> Vector:
        """The mean of the gradients of all batches at one point, not counted as work done."""
        noted = len(self._losses)
        n, size = len(self._arrays[0]), self._problem.local.batch_size
        augment = self._rng("augment", "full")
        rows = [np.arange(start, min(start + size, n)) for start in range(0, n, size)]
        total = sum((self.gradient(x, self._batch(r, augment)) for r in rows), torch.zeros_like(x))
        del self._losses[noted:]
        return total / len(rows)

    def weight(self) -> float:
        """This client's weight in the mean."""
        weighting: dict[str, Callable[[], float]] = {
            "examples": lambda: len(self._arrays[0]),
            "uniform": lambda: 1,
            "processed": lambda: self.books().examples,
            "tokens": self._tokens,
        }
        return float(weighting[self._problem.weighting]())

    def books(self) -> Books:
        examples = sum(n for n, _ in self._losses)
        return Books(len(self._losses), examples, sum(n * loss.item() for n, loss in self._losses))

    def _tokens(self) -> float:
        assert self._problem.tokens is not None  # the config refuses this weighting otherwise
        return self._problem.tokens(tensors(self._arrays, slice(None)))

    def _batch(self, rows: np.ndarray, augment: np.random.Generator) -> Batch:
        return self._problem.prepare(tensors(self._arrays, rows), augment)

    def _rng(self, purpose: str, part: int | str) -> np.random.Generator:
        return rng.generator(self._problem.seed, purpose, self.round.t, self._client, part)
