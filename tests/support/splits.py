"""Splits of given arrays, for tests of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedopt.data import Arrays, Split


def from_arrays(clients: Mapping[str, Sequence[Any]]) -> Split:
    """A split with these clients in the order of their ids."""
    columns = {name: tuple(map(np.asarray, clients[name])) for name in sorted(clients)}
    sizes = np.array([len(arrays[0]) for arrays in columns.values()])
    return Split(list(columns), sizes, partial(_get, list(columns.values())))


def _get(arrays: Sequence[Arrays], index: int) -> Arrays:
    return arrays[index]
