"""The weighted mean of what clients return, summed in a fixed order.

Floating-point addition is not associative, so the order is part of the result: clients are added in
cohort order within blocks of fixed size, and the blocks in order. It is the same on every executor and
for every number of workers, and a cluster can send one sum per block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedopt.algorithms.base import Vector
from fedopt.models.part import Part, union

BLOCK = 8


class BlockedMean:
    """sum_i w_i r_i / sum_i w_i for each returned vector; `add` must be called in cohort order.

    A client that is left out still takes its place in its block: call `skip`. What a client returns may be
    the part of a vector that it touched; the rest of it counts as zero.

    >>> mean = BlockedMean()
    >>> mean.add(1.0, [torch.tensor([1.0, 2.0])]); mean.add(3.0, [torch.tensor([5.0, 6.0])])
    >>> mean.value()
    (tensor([4., 5.]),)
    """

    def __init__(self) -> None:
        self._total: list[Vector] | None = None
        self._block: list[Vector] | None = None
        self._parts: list[tuple[Part, float, list[Vector]]] = []  # of this block, where clients return parts
        self._filled = 0
        self.weight = 0.0
        self.count = 0

    def add(self, weight: float, vectors: Sequence[Vector], part: Part | None = None) -> None:
        if part is not None:
            self._parts.append((part, weight, [v.clone() for v in vectors]))
        elif self._block is None:
            self._block = [weight * v for v in vectors]
        else:
            for total, v in zip(self._block, vectors, strict=True):
                total.add_(v, alpha=weight)
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
        if self._parts:
            self._close_parts()
        if self._block is None:
            return
        if self._total is None:
            self._total = self._block
        else:
            for total, v in zip(self._total, self._block, strict=True):
                total += v
        self._block = None

    def _close_parts(self) -> None:
        """Add up what the block's clients touched, and only then add that to the whole."""
        touched = union([part for part, _, _ in self._parts])
        returned = len(self._parts[0][2])
        sums = [torch.zeros(touched.size) for _ in range(returned)]
        for part, weight, vectors in self._parts:
            place = part.within(touched)
            for total, v in zip(sums, vectors, strict=True):
                place.add(total, v, weight)
        if self._total is None:
            self._total = [torch.zeros(touched.whole) for _ in range(returned)]
        for total, v in zip(self._total, sums, strict=True):
            touched.add(total, v)
        self._parts = []

    def value(self) -> tuple[Vector, ...] | None:
        """The means, or None if every client was left out. Ends the sum: to be called once."""
        self._close_block()
        if self._total is None:
            return None
        return tuple(total.div_(self.weight) for total in self._total)
