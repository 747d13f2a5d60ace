"""A federation is two splits, train and test; a split is clients by id, each with its examples.

A client's examples are a tuple of arrays of equal length, such as (pixels, labels). The sizes of all
clients are known without reading any of them, so that a round can start its longest client first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.errors import UserError

Arrays = tuple[NDArray[np.generic], ...]


def joined(parts: Sequence[Arrays]) -> Arrays:
    """The examples of several clients one after the other; rows of padded tokens get a common width."""
    columns = []
    for column in zip(*parts, strict=True):
        if column[0].ndim == 2:
            width = max(a.shape[1] for a in column)
            column = tuple(np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in column)
        columns.append(np.concatenate(column))
    return tuple(columns)


@dataclass(frozen=True, eq=False)
class Split:
    """Clients by position; `examples(i)` is a function of `i` alone, called where the client runs."""

    ids: Sequence[str]
    sizes: NDArray[np.int64]  # (clients,); ones where they are not known before reading
    examples: Callable[[int], Arrays]
    bunch: int = 1  # neighbours that a sample takes together, where making a client costs more than a slice

    def client(self, index: int) -> Arrays:
        """The examples of one client, checked."""
        arrays = self.examples(index)
        lengths = {len(a) for a in arrays}
        if not arrays or lengths == {0}:
            raise UserError(f"client {self.ids[index]!r} has no examples; leave it out of the federation")
        if len(lengths) > 1:
            raise UserError(f"client {self.ids[index]!r} has arrays of different lengths: {sorted(lengths)}")
        return arrays

    def gather(self, positions: NDArray[np.int64]) -> Arrays:
        """The examples at `positions` of the split's concatenation, in ascending order of position."""
        positions = np.sort(positions)
        ends = np.cumsum(self.sizes)
        owners, firsts = np.unique(np.searchsorted(ends, positions, side="right"), return_index=True)
        parts: list[Arrays] = []
        for owner, chosen in zip(owners, np.split(positions, firsts[1:]), strict=True):
            rows = chosen - (ends[owner] - self.sizes[owner])
            parts.append(tuple(a[rows] for a in self.client(int(owner))))
        return joined(parts)


class Federation(NamedTuple):
    train: Split
    test: Split
    source: str  # "synthetic", or where the data came from


def _lookup(arrays: Sequence[Arrays], index: int) -> Arrays:
    return arrays[index]


def _call(function: Callable[[str], Sequence[NDArray[np.generic]]], ids: Sequence[str], index: int) -> Arrays:
    return tuple(np.asarray(a) for a in function(ids[index]))


def from_arrays(clients: Mapping[str, Sequence[NDArray[np.generic]]]) -> Split:
    """A split from a mapping of client id to arrays, checked at once."""
    if not clients:
        raise UserError("the federation has no clients; pass at least one id with its arrays")
    ids = sorted(str(name) for name in clients)
    by_id = {str(name): tuple(np.asarray(a) for a in arrays) for name, arrays in clients.items()}
    columns = [by_id[name] for name in ids]
    sizes = np.array([len(arrays[0]) if arrays else 0 for arrays in columns], dtype=np.int64)
    split = Split(ids, sizes, partial(_lookup, columns))
    for index in range(len(ids)):
        split.client(index)
    return split


def from_function(function: Callable[[str], Sequence[NDArray[np.generic]]], ids: Sequence[str]) -> Split:
    """A split whose clients a function reads by id, one at a time, when they are needed."""
    names = sorted(str(name) for name in ids)
    if not names:
        raise UserError("the federation has no clients; pass their ids in `client_ids`")
    return Split(names, np.ones(len(names), dtype=np.int64), partial(_call, function, names))


@lru_cache(maxsize=1)
def _all_examples(split: Split, index: int) -> Arrays:
    return joined([split.client(i) for i in range(len(split.ids))])


def union(split: Split) -> Split:
    """One client that holds everyone's examples, read once: the data of centralized training."""
    return Split(["union"], np.array([split.sizes.sum()]), partial(_all_examples, split))
