"""Open the data of a task: its synthetic dataset or a store of imported files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.data import Arrays, Federation, LabelReader, Split
from fedopt.data.store import Ragged, StoredSplit, open_store
from fedopt.data.store.columns import Array, Columns
from fedopt.errors import ConfigError, DataError


class ColumnSplit(NamedTuple):
    """A split before encoding. `columns(i)` returns the columns of client i by name."""

    ids: Sequence[str]
    sizes: NDArray[np.int64]  # (clients,) rows of each client
    columns: Callable[[int], Columns]
    sample_block: int = 1  # see Split
    labels: Callable[[int], Array] | None = None  # of client i, without its other columns
    # Columns of row rows[k] of client clients[k] for all k; see Split.read_rows
    rows: Callable[[NDArray[np.int64], NDArray[np.int64]], Columns] | None = None


def open_splits(
    source: str, dataset: str, synthetic: Callable[[str], ColumnSplit], clients: int = 0
) -> tuple[ColumnSplit, ColumnSplit]:
    """Return train and test of `dataset` with the first `clients` clients each (0: all).

    `source` is the directory or URL of a store, or "synthetic" for the splits that `synthetic(split)`
    returns.
    """
    if source == "synthetic":
        train, test = synthetic("train"), synthetic("test")
    else:
        store = open_store(source)
        if store.name != dataset:
            raise DataError(
                f"{source} holds {store.name}, but the task needs {dataset}; name another directory, or "
                f"create one with `fedopt data import {dataset} PATH --to DIR`",
                path=source,
            )
        splits = map(store.split, ("train", "test"))
        train, test = (
            ColumnSplit(split.ids, split.sizes, split.columns, labels=stored_labels(split))
            for split in splits
        )
    population = len(train.ids)
    if not 0 <= clients <= population:
        message = f"data.clients must be 1 to {population}, or 0 for all, got {clients}"
        raise ConfigError(message, keys=["data.clients"])
    if clients:
        train, test = (s._replace(ids=s.ids[:clients], sizes=s.sizes[:clients]) for s in (train, test))
    return train, test


def stored_labels(split: StoredSplit) -> Callable[[int], Array] | None:
    """Return a function that reads the column "label" of a client, or None if there is none."""
    spec = split.summary["columns"].get("label")
    return None if spec is None or spec.get("ragged") else partial(_read_labels, split)


def _read_labels(split: StoredSplit, client: int) -> Array:
    column = split.column("label")
    assert not isinstance(column, Ragged)
    return column[split.offsets[client] : split.offsets[client + 1]]


def encode_federation(
    source: str, train: ColumnSplit, test: ColumnSplit, encode: Callable[[Columns], Arrays]
) -> Federation:
    """Build a federation whose clients are `encode(columns)`, one example per row."""
    first, second = (
        Split(
            s.ids,
            s.sizes,
            partial(_encode_client, s.columns, encode),
            s.sample_block,
            None if s.labels is None else LabelReader(s.labels),
            read_rows=None if s.rows is None else partial(_encode_rows, s.rows, encode),
        )
        for s in (train, test)
    )
    return Federation(first, second, source)


def _encode_client(
    columns: Callable[[int], Columns], encode: Callable[[Columns], Arrays], index: int
) -> Arrays:
    return encode(columns(index))


def _encode_rows(
    read: Callable[[NDArray[np.int64], NDArray[np.int64]], Columns],
    encode: Callable[[Columns], Arrays],
    clients: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> Arrays:
    return encode(read(clients, rows))


def flat_column(columns: Columns, name: str) -> Array:
    column = columns[name]
    assert not isinstance(column, Ragged)
    return column


def ragged_column(columns: Columns, name: str) -> Ragged:
    column = columns[name]
    assert isinstance(column, Ragged)
    return column
