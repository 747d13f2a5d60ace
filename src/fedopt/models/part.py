"""The part of a model that one client's data can touch: some rows of its first parameter, all of the others.

A bag of words touches a few hundred of 10,000 rows; the gradient of all others is exactly zero. A client
that works on the part alone computes the same numbers from a tenth of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Part(NamedTuple):
    """Rows of a table with `height` rows and `width` columns, and the `rest` that follows it in a vector."""

    rows: Tensor  # ascending, int64
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

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        size = self.height * self.width
        return x[:size].view(self.height, self.width), x[size:]

    def take(self, x: Tensor) -> Tensor:
        """The part of a whole vector, as a vector of its own."""
        table, rest = self._split(x)
        return torch.cat([table.index_select(0, self.rows).view(-1), rest])

    def add(self, total: Tensor, part: Tensor, weight: float = 1.0) -> None:
        """Add a part's vector to a whole one, in place."""
        table, rest = self._split(total)
        size = len(self.rows) * self.width
        table.index_add_(0, self.rows, part[:size].view(self.shape), alpha=weight)
        rest.add_(part[size:], alpha=weight)

    def within(self, larger: Part) -> Part:
        """The same part, of the vector that holds `larger` alone."""
        return self._replace(rows=torch.searchsorted(larger.rows, self.rows), height=len(larger.rows))


def _received(rows: NDArray[np.int64], *sizes: int) -> Part:
    return Part(torch.from_numpy(rows), *sizes)


def union(parts: Sequence[Part]) -> Part:
    """The part that holds all of these."""
    rows = torch.unique(torch.cat([part.rows for part in parts]))
    return parts[0]._replace(rows=rows)
