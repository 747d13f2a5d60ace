"""Federations: a train and a test split, each with clients and their examples.

The examples of a client are a tuple of arrays of equal length, such as (pixels, labels). The sizes of all
clients are known without reading them, so that a round can start with its largest clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.errors import DataError
from fedopt.formatting import count_noun

Arrays = tuple[NDArray[np.generic], ...]


def concatenate_examples(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate the examples of several clients. Rows of tokens are padded to a common width."""
    columns = []
    for column in zip(*parts, strict=True):
        if column[0].ndim == 2:
            width = max(a.shape[1] for a in column)
            column = tuple(np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in column)
        columns.append(np.concatenate(column))
    return tuple(columns)


class LabelReader(NamedTuple):
    """Reads the class labels of a client, (examples,). They describe the data; training does not use them."""

    read: Callable[[int], NDArray[np.generic]]
    is_cheap: bool = True  # whether reading them is much faster than reading the examples
    names: Sequence[str] = ()  # the text of each label


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Clients by position. `examples(i)` depends only on `i`; the process that runs client i calls it."""

    ids: Sequence[str]
    sizes: NDArray[np.int64]  # (clients,); ones if `knows_sizes` is False
    examples: Callable[[int], Arrays]
    sample_block: int = 1  # consecutive examples that a sample takes together, to read fewer clients
    labels: LabelReader | None = None
    knows_sizes: bool = True  # before reading
    # Reads row rows[k] of client clients[k] for all k, faster than reading all examples of these clients.
    read_rows: Callable[[NDArray[np.int64], NDArray[np.int64]], Arrays] | None = None

    def __repr__(self) -> str:
        return f"Split({self.describe()})"  # without the data

    def describe(self) -> str:
        """Return the number of clients, and of examples if it is known."""
        clients = count_noun(len(self.ids), "client")
        return f"{clients}, {count_noun(int(self.sizes.sum()), 'example')}" if self.knows_sizes else clients

    def client(self, index: int) -> Arrays:
        """Return the examples of one client, after checking their lengths."""
        arrays = self.examples(index)
        lengths = {len(a) for a in arrays}
        if not arrays or lengths == {0}:
            message = f"client {self.ids[index]!r} has no examples; remove it from the federation"
            raise DataError(message, client=self.ids[index])
        if len(lengths) > 1:
            message = f"client {self.ids[index]!r} has arrays of different lengths: {sorted(lengths)}"
            raise DataError(message, client=self.ids[index])
        return arrays

    def read_clients(self, clients: Sequence[int]) -> tuple[Arrays, list[int]]:
        """Return the examples of several clients, in ascending order, and the number of each client."""
        if self.read_rows is None or not self.knows_sizes:
            parts = [self.client(index) for index in clients]
            return concatenate_examples(parts), [len(part[0]) for part in parts]
        sizes = [int(self.sizes[index]) for index in clients]
        rows = np.concatenate([np.arange(size) for size in sizes])
        return self.read_rows(np.repeat(clients, sizes), rows), sizes

    def gather(self, positions: NDArray[np.int64]) -> Arrays:
        """Return the examples at `positions` of the concatenation of all clients, in ascending order."""
        positions = np.sort(positions)
        ends = np.cumsum(self.sizes)
        owners = np.searchsorted(ends, positions, side="right")
        rows = positions - (ends - self.sizes)[owners]
        if self.read_rows is not None:
            return self.read_rows(owners, rows)
        clients, firsts = np.unique(owners, return_index=True)
        return concatenate_examples(
            [
                tuple(a[chosen] for a in self.client(int(client)))
                for client, chosen in zip(clients, np.split(rows, firsts[1:]), strict=True)
            ]
        )


class Federation(NamedTuple):
    """The data of a task."""

    train: Split
    test: Split
    source: str  # "synthetic", or the directory of the store
    output_names: Sequence[str] = ()  # labels in the order of a model's outputs, if examples have several


def _call(function: Callable[[str], Sequence[NDArray[np.generic]]], ids: Sequence[str], index: int) -> Arrays:
    return tuple(np.asarray(a) for a in function(ids[index]))


def last_array(examples: Callable[[int], Arrays], index: int) -> NDArray[np.generic]:
    """Return the last array of a client. In user-defined tasks it is the target."""
    return examples(index)[-1]


def from_function(function: Callable[[str], Sequence[NDArray[np.generic]]], ids: Sequence[str]) -> Split:
    """Build a split whose clients are read by calling `function(id)` when they are needed."""
    names = sorted(str(name) for name in ids)
    if not names:
        raise DataError("the federation has no clients; pass their ids in `client_ids`")
    if len(set(names)) < len(names):
        raise DataError("client_ids has two ids that are equal as text; make the ids unique")
    examples = partial(_call, function, names)
    labels = LabelReader(partial(last_array, examples), is_cheap=False)
    sizes = np.ones(len(names), dtype=np.int64)
    return Split(names, sizes, examples, labels=labels, knows_sizes=False)


@lru_cache(maxsize=1)
def _all_examples(split: Split, index: int) -> Arrays:
    return concatenate_examples([split.client(i) for i in range(len(split.ids))])


def union(split: Split) -> Split:
    """Return a split with one client that has the examples of all clients, for centralized training."""
    return Split(["union"], np.array([split.sizes.sum()]), partial(_all_examples, split))
