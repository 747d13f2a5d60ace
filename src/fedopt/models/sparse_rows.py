"""The part of a model that one client's data can touch: some rows of its first parameter, all of the others.

A bag of words touches a few hundred of 10,000 rows; the gradient of all others is exactly zero. A client
that works on the part alone computes the same numbers from a tenth of the memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Part(NamedTuple):
    """Rows of a table with `height` rows and `width` columns, and the `rest` that follows it in a vector."""

    rows: Tensor  # each once, int64
    height: int
    width: int
    rest: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels between processes by value: torch would open a file for each tensor."""
        return _received, (self.rows.numpy(), self.height, self.width, self.rest)

    @property
    def size(self) -> int:
        """Of the part's vector."""
        return len(self.rows) * self.width + self.rest

    @property
    def whole(self) -> int:
        """The size of the vector that it is part of."""
        return self.height * self.width + self.rest

    @property
    def shape(self) -> tuple[int, int]:
        """Of the table's part."""
        return len(self.rows), self.width

    def split(self, x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """A vector with so many rows of the table, as these and the rest."""
        size = rows * self.width
        return x[:size].view(rows, self.width), x[size:]

    def take(self, x: Tensor) -> Tensor:
        """The part of a whole vector, as a vector of its own."""
        table, rest = self.split(x, self.height)
        part = x.new_empty(self.size)
        rows, others = self.split(part, len(self.rows))
        torch.index_select(table, 0, self.rows, out=rows)
        others.copy_(rest)
        return part

    def put(self, x: Tensor, part: Tensor) -> None:
        """Write a part's vector into a whole one, in place."""
        table, rest = self.split(x, self.height)
        rows, others = self.split(part, len(self.rows))
        table.numpy()[self.rows.numpy()] = rows.numpy()  # torch takes twice as long
        rest.copy_(others)


def _received(rows: NDArray[np.int64], *sizes: int) -> Part:
    return Part(torch.from_numpy(rows), *sizes)
