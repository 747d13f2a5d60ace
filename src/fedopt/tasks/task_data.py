"""Where a task's examples come from: its synthetic twin or a store of imported files, read the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.data import Arrays, Federation, Split
from fedopt.data.store import open_store
from fedopt.data.store.columns import Column
from fedopt.errors import UserError

Columns = Mapping[str, Column]


class Raw(NamedTuple):
    """A split as it is stored: a client's columns by their names, and how many rows they have."""

    ids: Sequence[str]
    sizes: NDArray[np.int64]
    columns: Callable[[int], Columns]
    bunch: int = 1  # see Split


def open_raw(source: str, dataset: str, twin: Callable[[str], Raw], clients: int = 0) -> tuple[Raw, Raw]:
    """Train and test of `dataset`, of each the first `clients` (0: all).

    `source` is a store's directory, or "synthetic" for the splits that `twin` makes.
    """
    if source == "synthetic":
        train, test = twin("train"), twin("test")
    else:
        store = open_store(Path(source))
        if store.name != dataset:
            raise UserError(
                f"{source} holds {store.name} and the task needs {dataset}; name another directory, or make "
                f"one with `fedopt data import {dataset} PATH --to DIR`"
            )
        splits = map(store.split, ("train", "test"))
        train, test = (Raw(split.ids, split.sizes, split.columns) for split in splits)
    population = len(train.ids)
    if not 0 <= clients <= population:
        raise UserError(f"data.clients must be 1 to {population}, or 0 for all, got {clients}")
    if clients:
        train, test = (s._replace(ids=s.ids[:clients], sizes=s.sizes[:clients]) for s in (train, test))
    return train, test


def _encoded(columns: Callable[[int], Columns], encode: Callable[[Columns], Arrays], index: int) -> Arrays:
    return encode(columns(index))


def federation(source: str, train: Raw, test: Raw, encode: Callable[[Columns], Arrays]) -> Federation:
    """Clients whose columns `encode` turns into arrays, a row for each row."""
    first, second = (
        Split(s.ids, s.sizes, partial(_encoded, s.columns, encode), s.bunch) for s in (train, test)
    )
    return Federation(first, second, source)
