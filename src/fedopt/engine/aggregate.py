"""Aggregate the cohort of a round: the weighted mean of the returned vectors, and the round's statistics.

Floating-point addition is not associative, so the order of summation is part of the result. Clients are added
in cohort order within blocks, and blocks are added in order. The order does not depend on the number of
workers, and a worker can send one sum per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedopt.algorithms.base import Algorithm, State, Vector
from fedopt.data import Split
from fedopt.engine.running_statistics import NAME as STATISTICS
from fedopt.engine.worker import ClientReport
from fedopt.models.sparse_rows import SparseRows

BLOCK = 8  # clients of a block, unless an executor trains other blocks


class BlockSum:
    """sum_i w_i r_i over the clients of a block, for each returned vector; call `add` in cohort order.

    All clients of a round return full vectors, or all return vectors with sparse rows; missing rows count as
    zero.
    """

    def __init__(self) -> None:
        self._sums: _DenseSum | _SparseSum | None = None
        self.weight = 0.0
        self.count = 0  # of clients

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value, as arrays. The sum on the other side is identical to the bit."""
        return _unpickle, (self.weight, self.count, [v.numpy() for v in self.vectors()], self.rows())

    def add(self, weight: float, vectors: Sequence[Vector], rows: SparseRows | None = None) -> None:
        self._add(weight, vectors, rows)
        self.weight += weight
        self.count += 1

    @classmethod
    def from_vectors(cls, sums: Sequence[Vector], weight: float, count: int) -> BlockSum:
        """Return a block whose weighted sums have been computed. It adds to these vectors in place."""
        block = cls()
        if count:
            block._sums = _DenseSum(sums)
        block.weight, block.count = weight, count
        return block

    def merge(self, other: BlockSum) -> None:
        """Add the sums of another block."""
        if self._sums is None:
            self._sums = other._sums
        elif other._sums is not None:
            self._add(1.0, other.vectors(), other.rows())
        self.weight += other.weight
        self.count += other.count

    def _add(self, weight: float, vectors: Sequence[Vector], rows: SparseRows | None) -> None:
        if self._sums is None:
            self._sums = _DenseSum() if rows is None else _SparseSum(rows, len(vectors))
        self._sums.add(weight, vectors, rows)

    def vectors(self) -> list[Vector]:
        return [] if self._sums is None else self._sums.vectors()

    def rows(self) -> SparseRows | None:
        return None if self._sums is None else self._sums.rows()


def _unpickle(
    weight: float, count: int, arrays: Sequence[NDArray[np.float32]], rows: SparseRows | None
) -> BlockSum:
    block = BlockSum()
    if arrays:
        block.add(1.0, [torch.tensor(array) for array in arrays], rows)
    block.weight, block.count = weight, count
    return block


class BlockedMean:
    """sum_i w_i r_i / sum_i w_i for each returned vector; call `add_block` in cohort order.

    >>> block, mean = BlockSum(), BlockedMean()
    >>> block.add(1.0, [torch.tensor([1.0, 2.0])]); block.add(3.0, [torch.tensor([5.0, 6.0])])
    >>> mean.add_block(block)
    >>> mean.value()
    (tensor([4., 5.]),)
    """

    def __init__(self) -> None:
        self._total = BlockSum()

    @property
    def weight(self) -> float:
        return self._total.weight

    @property
    def count(self) -> int:
        return self._total.count

    def add_block(self, block: BlockSum) -> None:
        self._total.merge(block)

    def value(self) -> tuple[Vector, ...] | None:
        """Return the means as full vectors, or None without any client. Call it once, at the end."""
        if not self.count:
            return None
        means, rows = tuple(v.div_(self.weight) for v in self._total.vectors()), self._total.rows()
        if rows is None:
            return means
        full = tuple(torch.zeros(rows.full_size) for _ in means)
        for vector, mean in zip(full, means, strict=True):
            rows.put(vector, mean)
        return full


class RoundReport(NamedTuple):
    """Statistics of one round.

    Attributes:
        loss: mean train loss of the cohort during its local work; None without a finite client.
        clients: number of clients in the mean.
        rejected: clients that were left out because their loss or update was not finite.
        skipped: number of clients with fewer examples than one batch, if short batches are dropped.
        examples: number of processed examples.
        bytes_down: number of bytes sent to clients.
        bytes_up: number of bytes sent to the server.
    """

    loss: float | None
    clients: int
    rejected: tuple[str, ...]
    skipped: int
    examples: int
    bytes_down: int
    bytes_up: int


class Tally:
    """Counts the clients and losses of a round while it runs."""

    def __init__(self, clients: Split) -> None:
        self._clients = clients
        self._accepted: list[str] = []
        self._rejected: list[str] = []
        self._loss, self._examples = 0.0, 0

    def add(self, client: ClientReport) -> None:
        """Record a client. It is part of the mean if it had a batch and is finite."""
        if not client.steps:
            return
        name = self._clients.ids[client.client]
        if not client.finite:
            self._rejected.append(name)
            return
        self._accepted.append(name)
        self._loss, self._examples = self._loss + client.loss, self._examples + client.examples

    def reject_all(self) -> None:
        self._accepted, self._rejected = [], [*self._accepted, *self._rejected]

    def report(self, algorithm: Algorithm, cohort: int, state: State) -> RoundReport:
        lengths = {STATISTICS: len(state.running_statistics)} if STATISTICS in algorithm.returns else {}
        down, up = (
            sum(lengths.get(name, len(state.x)) for name in names)
            for names in (algorithm.sends, algorithm.returns)
        )
        accepted, rejected = len(self._accepted), len(self._rejected)
        return RoundReport(
            loss=self._loss / self._examples if accepted and self._examples else None,
            clients=accepted,
            rejected=tuple(self._rejected),
            skipped=cohort - accepted - rejected,
            examples=self._examples,
            bytes_down=4 * down * cohort,
            bytes_up=4 * up * (accepted + rejected),
        )


class _DenseSum:
    """A weighted sum of full vectors."""

    def __init__(self, vectors: Sequence[Vector] = ()) -> None:
        self._vectors = list(vectors)

    def add(self, weight: float, vectors: Sequence[Vector], rows: SparseRows | None) -> None:
        if not self._vectors:
            self._vectors = [weight * v for v in vectors]
            return
        for total, v in zip(self._vectors, vectors, strict=True):
            total.add_(v, alpha=weight)

    def vectors(self) -> list[Vector]:
        return self._vectors

    def rows(self) -> None:
        return None


class _SparseSum:
    """A weighted sum of vectors with sparse rows. Rows are stored in the order in which they first occur."""

    def __init__(self, like: SparseRows, count: int) -> None:
        self._like = like
        self._positions = torch.full((like.height,), -1)  # position of each row of the table in the sum
        self._rows: list[torch.Tensor] = []
        self._filled = 0
        self._sums = [torch.empty(like.full_size) for _ in range(count)]  # pages are allocated on first use
        self._remainders = [torch.zeros(like.rest) for _ in range(count)]

    def add(self, weight: float, vectors: Sequence[Vector], rows: SparseRows | None) -> None:
        assert rows is not None  # all clients of a round return sparse rows, or none does
        new = rows.rows[self._positions[rows.rows] < 0]
        begin, end = self._filled, self._filled + len(new)
        self._positions[new] = torch.arange(begin, end)
        self._rows.append(new)
        self._filled = end
        positions = self._positions[rows.rows]
        for total, remainder, vector in zip(self._sums, self._remainders, vectors, strict=True):
            sums, _ = rows.split(total, rows.height)
            values, others = rows.split(vector, len(rows.rows))
            sums[begin:end] = 0
            sums.index_add_(0, positions, values, alpha=weight)
            remainder.add_(others, alpha=weight)

    def vectors(self) -> list[Vector]:
        size = self._filled * self._like.width
        for total, remainder in zip(self._sums, self._remainders, strict=True):
            total[size : size + len(remainder)] = remainder
        return [total[: size + self._like.rest] for total in self._sums]

    def rows(self) -> SparseRows:
        return self._like._replace(rows=torch.cat(self._rows))
