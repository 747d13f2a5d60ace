"""Some rows of a model's first parameter, together with all other parameters, as one short vector.

A bag of words uses a few hundred of 10,000 rows, and the gradient of all other rows is exactly zero. A client
that trains only these rows computes the same numbers with a tenth of the memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class SparseRows(NamedTuple):
    """Selected rows of the first parameter, a table of `height` x `width`, and all `rest` elements."""

    rows: Tensor  # int64, without duplicates
    height: int
    width: int
    rest: int  # number of elements after the table

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value. torch would open a file for each tensor that is sent between processes."""
        return _unpickle, (self.rows.numpy(), self.height, self.width, self.rest)

    @property
    def size(self) -> int:
        """Number of elements of the short vector."""
        return len(self.rows) * self.width + self.rest

    @property
    def full_size(self) -> int:
        """Number of elements of the full vector."""
        return self.height * self.width + self.rest

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the first parameter with only these rows."""
        return len(self.rows), self.width

    def split(self, x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Split a vector with `rows` rows of the table into the table and the rest."""
        size = rows * self.width
        return x[:size].view(rows, self.width), x[size:]

    def take(self, x: Tensor) -> Tensor:
        """Return the short vector of a full vector `x`."""
        table, rest = self.split(x, self.height)
        short = x.new_empty(self.size)
        rows, others = self.split(short, len(self.rows))
        torch.index_select(table, 0, self.rows, out=rows)
        others.copy_(rest)
        return short

    def put(self, x: Tensor, short: Tensor) -> None:
        """Write a short vector into the full vector `x`, in place."""
        table, rest = self.split(x, self.height)
        rows, others = self.split(short, len(self.rows))
        table.numpy()[self.rows.numpy()] = rows.numpy()  # torch takes twice as long
        rest.copy_(others)


def _unpickle(rows: NDArray[np.int64], *sizes: int) -> SparseRows:
    return SparseRows(torch.tensor(rows), *sizes)  # the array may be read-only
