"""Flat and ragged columns, and the names of the files of a store.

A flat column is one array with a row per example. A ragged column is one array of values with an offset per
example, for sentences and other rows of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

FORMAT = 1
MANIFEST = "manifest.json"
IDS = "ids"  # a ragged column of UTF-8 bytes, so that opening a store does not read the ids
OFFSETS = "offsets.npy"


class Ragged(NamedTuple):
    """Rows of different lengths: row i is values[offsets[i]:offsets[i + 1]]."""

    values: Array
    offsets: NDArray[np.int64]  # (rows + 1,), from 0

    def rows(self) -> list[Array]:
        """Return the rows as views."""
        return [self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]


Column = Array | Ragged
Columns = Mapping[str, Column]
ClientColumns = Mapping[str, Array | Ragged | Sequence[Array]]  # accepted by the writer


def ragged(rows: Iterable[Array | Sequence[int]], dtype: DTypeLike) -> Ragged:
    """Join rows into one ragged column.

    >>> ragged([[1, 2], [], [3]], np.uint16)
    Ragged(values=array([1, 2, 3], dtype=uint16), offsets=array([0, 2, 2, 3]))
    """
    parts = [np.asarray(row, dtype=dtype) for row in rows]
    values = np.concatenate(parts) if parts else np.empty(0, dtype)
    return Ragged(values, offsets_from_lengths([len(part) for part in parts]))


def text_rows(rows: Sequence[bytes]) -> Ragged:
    """Join byte strings into a ragged column of uint8."""
    values = np.frombuffer(b"".join(rows), dtype=np.uint8)
    return Ragged(values, offsets_from_lengths([len(row) for row in rows]))


def offsets_from_lengths(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offsets of rows with these lengths.

    >>> offsets_from_lengths([2, 0, 1])
    array([0, 2, 2, 3])
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
