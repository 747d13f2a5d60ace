"""One client's local training: batches, gradients, statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedopt import rng
from fedopt.algorithms.base import Round, Vector
from fedopt.data import Arrays
from fedopt.engine.problem import LocalWork, Problem
from fedopt.models.capabilities import SelfUpdating
from fedopt.models.flat import Flat, updating_in_backward
from fedopt.models.sparse_rows import SparseRows
from fedopt.tasks.batch import Batch, count_examples

_EMPTY = torch.empty(0)


def tensors(arrays: Arrays, rows: np.ndarray | slice) -> tuple[Tensor, ...]:
    """Copy rows of each array to memory of torch, whose alignment does not vary."""
    return tuple(torch.tensor(a[rows]) for a in arrays)


def shuffled_rows(seed: int, t: int, client: str, epoch: int, n: int) -> NDArray[np.int64]:
    """Return the order of a client's `n` examples in an epoch of round t."""
    return rng.permutation(n, seed, "shuffle", t, client, epoch)


def rows_in_order(local: LocalWork, n: int) -> list[NDArray[np.int64]]:
    """Return the row numbers of each batch of `n` examples that are not shuffled."""
    size = local.batch_size
    return [np.arange(i * size, min((i + 1) * size, n)) for i in range(local.batches_per_epoch(n))]


class TrainingStatistics(NamedTuple):
    """Counts and loss of one client's local training."""

    steps: int
    examples: int  # processed examples; every epoch counts
    loss: float  # sum over the processed examples, each at the time of its step


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
        rows: SparseRows | None = None,
        output: Vector | None = None,
        layers: Sequence[SelfUpdating] = (),
    ) -> None:
        self.round = round
        self.kept = kept
        self.steps = problem.local.planned_steps(len(arrays[0]))
        self.output = output  # optional preallocated buffer for the first vector that the client returns
        self._problem = problem
        self._flat = flat
        self._rows = rows  # the rows of the model that this client trains; None: all of them
        self._arrays = arrays
        self.received: Vector | None = None  # x as the client receives it
        self._client = client
        self._layers = layers  # those that `descend` may update in the backward pass
        self._own: Vector | None = None  # the vector that `descend` overwrites
        self._bound: Vector | None = None  # the vector whose views the parameters are
        self._added: tuple[Vector, list[Tensor]] | None = None
        self._losses: list[tuple[int, Tensor]] = []  # converted at the end: .item() would synchronise
        self._full_losses: list[tuple[int, Tensor]] = []  # of the last full gradient

    def kept_or(self, *first: Vector) -> tuple[Vector, ...]:
        return first if self.kept is None else self.kept

    def batches(self) -> Iterator[Batch]:
        """Yield E epochs of shuffled batches, or K steps; a new epoch begins when one is used up."""
        local, n = self._problem.local, len(self._arrays[0])
        step = epoch = 0
        while step < self.steps:
            order = shuffled_rows(self._problem.seed, self.round.t, self._client, epoch, n)
            augment = self._rng("augment", epoch)
            for start in range(0, local.batches_per_epoch(n) * local.batch_size, local.batch_size):
                if step == self.steps:
                    return
                yield self._batch(order[start : start + local.batch_size], augment)
                step += 1
            epoch += 1

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        """Return the gradient of the objective at `x` as a flat vector, and record the loss."""
        self._bind(x)
        gradients = self._differentiate(batch, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in gradients])

    def descend(self, x_i: Vector, batch: Batch, eta_l: float, add: Vector | None = None) -> Vector:
        """Take a step of SGD in place, on a copy of `x_i` in the first step."""
        if x_i is not self._own:
            output, self.output = self.output, None  # it holds one vector
            x_i = x_i.clone() if output is None else output[: len(x_i)].copy_(x_i)
        self._bind(x_i)
        layers = self._layers if add is None else ()
        with updating_in_backward(layers, eta_l):
            gradients = self._differentiate(batch, updates_itself=bool(layers), allow_unused=True)
        with torch.no_grad():
            if add is None:
                for p, g in zip(self._flat.parameters, gradients, strict=True):
                    if g is not None:
                        p.add_(g, alpha=-eta_l)
            else:
                for p, g, part in zip(self._flat.parameters, gradients, self._split(add), strict=True):
                    p.add_(part if g is None else g + part, alpha=-eta_l)
        self._own = self._taken(x_i)
        return self._own

    def delta(self, x_i: Vector, x: Vector) -> Vector:
        if x_i is not self._own:
            return x_i - x
        self._own = None
        return self._taken(x_i).sub_(x)

    def _taken(self, x_i: Vector) -> Vector:
        """Return a new tensor with the memory of `x_i`, and empty `x_i`: using it later is an error."""
        own = x_i.detach()
        x_i.data = _EMPTY
        if x_i is self._bound:
            self._bound = own
        return own

    def _bind(self, x: Vector) -> None:
        if x is not self._bound:
            # A copy of the received vector: a model that changes its parameters must not change x itself.
            self._flat.bind(x.clone() if x is self.received else x, self._rows)
            self._bound = x

    def _split(self, add: Vector) -> list[Tensor]:
        """Return views of `add`, one for each parameter. All steps usually add the same vector."""
        if self._added is None or add is not self._added[0]:
            self._added = add, self._flat.split(add, self._rows)
        return self._added[1]

    def _differentiate(self, batch: Batch, updates_itself: bool = False, **options: Any) -> Any:
        """Return the gradient of each parameter. Refuse a model that changes a parameter on its own."""
        flat, before = self._flat, self._flat.versions()
        values = None if self._losses or updates_itself else flat.read()  # of a client's first pass
        with self._problem.profile("pass", self.round.t):
            gradients = torch.autograd.grad(self._objective(batch), flat.parameters, **options)
        if not updates_itself:
            flat.check_parameters(before, values)
        return gradients

    def _objective(self, batch: Batch) -> Tensor:
        inputs, targets = batch
        n = count_examples(targets)
        objective, loss = self._problem.objective(self._flat.module, inputs, targets, n)
        self._losses.append((n, loss))
        return objective

    def full_gradient(self, x: Vector) -> Vector:
        """Return the mean of the gradients of all batches at `x`. It does not count as training."""
        recorded = len(self._losses)
        statistics = None if self._flat.statistics is None else self.read_statistics()
        total, count = torch.zeros_like(x), 0
        for batch in self.full_batches():
            total, count = total + self.gradient(x, batch), count + 1
        self._full_losses = self._losses[recorded:]
        del self._losses[recorded:]
        if statistics is not None:
            self.write_statistics(statistics)
        return total / count

    def full_batches(self) -> Iterator[Batch]:
        """Yield the batches B_i, each once and in order."""
        augment = self._rng("augment", "full")
        for rows in rows_in_order(self._problem.local, len(self._arrays[0])):
            yield self._batch(rows, augment)

    def read_statistics(self) -> Vector:
        """Return the running statistics of the normalisation layers."""
        assert self._flat.statistics is not None  # only algorithms that track them call this
        return self._flat.statistics.read()

    def write_statistics(self, values: Vector | None) -> None:
        """Set the running statistics. None means those of the initial model."""
        statistics = self._flat.statistics
        assert statistics is not None
        statistics.write(statistics.initial if values is None else values)

    def weight(self) -> float:
        """Return the weight of this client in the mean."""
        weighting: dict[str, Callable[[], float]] = {
            "examples": lambda: len(self._arrays[0]),
            "uniform": lambda: 1,
            "processed": lambda: self.statistics().examples,
            "tokens": self.tokens,
        }
        return float(weighting[self._problem.weighting]())

    def statistics(self) -> TrainingStatistics:
        """Return the number of steps and their loss, or the loss of the full gradient without steps."""
        losses = self._losses or self._full_losses
        examples = sum(n for n, _ in losses)
        loss = sum(n * loss.item() for n, loss in losses)
        return TrainingStatistics(len(self._losses), examples, loss)

    def tokens(self) -> int:
        """Return the number of tokens of this client."""
        assert self._problem.tokens is not None  # the configuration rejects this weighting otherwise
        return self._problem.tokens(tensors(self._arrays, slice(None)))

    def _batch(self, rows: np.ndarray, augment: np.random.Generator) -> Batch:
        return self._problem.prepare(tensors(self._arrays, rows), augment)

    def _rng(self, purpose: str, part: int | str) -> np.random.Generator:
        return rng.generator(self._problem.seed, purpose, self.round.t, self._client, part)
