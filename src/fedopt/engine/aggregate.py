"""The weighted mean of what clients return, summed in a fixed order.

Floating-point addition is not associative, so the order is part of the result: clients are added in
cohort order within blocks of fixed size, and the blocks in order. It is the same on every executor and
for every number of workers, and a cluster can send one sum per block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedopt.algorithms.base import Vector
from fedopt.models.sparse_rows import Part

BLOCK = 8


class BlockedMean:
    """sum_i w_i r_i / sum_i w_i for each returned vector; `add` must be called in cohort order.

    A client that is left out still takes its place in its block: call `skip`. What clients return may be
    the parts of vectors that they touched; the rest counts as zero.

    >>> mean = BlockedMean()
    >>> mean.add(1.0, [torch.tensor([1.0, 2.0])]); mean.add(3.0, [torch.tensor([5.0, 6.0])])
    >>> mean.value()
    (tensor([4., 5.]),)
    """

    def __init__(self) -> None:
        self._total: _Sum | _TouchedSum | None = None
        self._block: _Sum | _TouchedSum | None = None
        self._filled = 0
        self.weight = 0.0
        self.count = 0

    def add(self, weight: float, vectors: Sequence[Vector], part: Part | None = None) -> None:
        if self._block is None:
            self._block = _Sum() if part is None else _TouchedSum(part, len(vectors))
        self._block.add(weight, vectors, part)
        self.weight += weight
        self.count += 1
        self._advance()

    def skip(self) -> None:
        self._advance()

    def _advance(self) -> None:
        self._filled += 1
        if self._filled == BLOCK:
            self._close_block()

    def _close_block(self) -> None:
        self._filled = 0
        if self._total is None:
            self._total = self._block
        elif self._block is not None:
            self._total.add(1.0, self._block.vectors(), self._block.part())
        self._block = None

    def value(self) -> tuple[Vector, ...] | None:
        """The means, or None if every client was left out. Ends the sum: to be called once."""
        found = self.touched()
        if found is None:
            return None if self._total is None else self._means(self._total)
        part, means = found
        whole = tuple(torch.zeros(part.whole) for _ in means)
        for vector, mean in zip(whole, means, strict=True):
            part.put(vector, mean)
        return whole

    def touched(self) -> tuple[Part, tuple[Vector, ...]] | None:
        """The part that some client touched and its means, where clients return parts; that ends the sum."""
        self._close_block()
        part = None if self._total is None else self._total.part()
        return None if self._total is None or part is None else (part, self._means(self._total))

    def _means(self, total: _Sum | _TouchedSum) -> tuple[Vector, ...]:
        return tuple(v.div_(self.weight) for v in total.vectors())


class _Sum:
    """Of whole vectors."""

    def __init__(self) -> None:
        self._vectors: list[Vector] = []

    def add(self, weight: float, vectors: Sequence[Vector], part: Part | None) -> None:
        if not self._vectors:
            self._vectors = [weight * v for v in vectors]
            return
        for total, v in zip(self._vectors, vectors, strict=True):
            total.add_(v, alpha=weight)

    def vectors(self) -> list[Vector]:
        return self._vectors

    def part(self) -> None:
        return None


class _TouchedSum:
    """Of parts: the rows that one of them has stand one after the other as they came, the rest follows."""

    def __init__(self, like: Part, count: int) -> None:
        self._like = like
        self._places = torch.full((like.height,), -1)  # where a row of the whole stands here
        self._rows: list[torch.Tensor] = []
        self._filled = 0
        self._sums = [torch.empty(like.whole) for _ in range(count)]  # what is not filled takes no memory
        self._remainders = [torch.zeros(like.rest) for _ in range(count)]

    def add(self, weight: float, vectors: Sequence[Vector], part: Part | None) -> None:
        assert part is not None  # all clients of a round return parts, or none does
        fresh = part.rows[self._places[part.rows] < 0]
        begin, end = self._filled, self._filled + len(fresh)
        self._places[fresh] = torch.arange(begin, end)
        self._rows.append(fresh)
        self._filled = end
        places = self._places[part.rows]
        for total, remainder, vector in zip(self._sums, self._remainders, vectors, strict=True):
            sums, _ = part.split(total, part.height)
            rows, others = part.split(vector, len(part.rows))
            sums[begin:end] = 0
            sums.index_add_(0, places, rows, alpha=weight)
            remainder.add_(others, alpha=weight)

    def vectors(self) -> list[Vector]:
        size = self._filled * self._like.width
        for total, remainder in zip(self._sums, self._remainders, strict=True):
            total[size : size + len(remainder)] = remainder
        return [total[: size + self._like.rest] for total in self._sums]

    def part(self) -> Part:
        return self._like._replace(rows=torch.cat(self._rows))
