"""Helpers that the synthetic datasets share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedopt.errors import DataError, unknown

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def count_clients(clients: Mapping[str, int], split: str) -> int:
    """Return the number of clients of a split."""
    if split not in clients:
        raise unknown("split", split, clients)
    return clients[split]


def check_client(split: str, client: int, count: int) -> int:
    """Return `client` as a Python integer, because a NumPy integer would change the random key."""
    if not 0 <= client < count:
        message = f"there is no client {client} in {split}; clients are numbered 0 to {count - 1}"
        raise DataError(message, client=str(client))
    return int(client)


def heavy_tailed_sizes(draw: np.random.Generator, clients: int, total: int) -> Integers:
    """Draw client sizes of at least 1 from a log-normal distribution, with the sum `total`."""
    ends = np.cumsum(draw.lognormal(0.0, 1.4, clients))
    # Rounding the running sum instead of the sizes keeps the total exact.
    ends = np.floor(ends / ends[-1] * (total - clients))
    sizes: Integers = 1 + np.diff(ends, prepend=0.0).astype(np.int64)
    return read_only(sizes)


def read_only(sizes: Integers) -> Integers:
    """Protect a cached array, because all callers receive the same one."""
    sizes.setflags(write=False)
    return sizes


def cumulative_shares(weights: npt.NDArray[np.floating]) -> Doubles:
    """Return the cumulative sum of `weights`, scaled to end at 1."""
    total = np.cumsum(weights)
    return np.asarray(total / total[-1])


def choose(cumulative: npt.NDArray[np.floating], uniform: npt.NDArray[np.floating]) -> Integers:
    """Return positions with the probabilities of `cumulative` shares, from uniform numbers below 1."""
    return np.searchsorted(cumulative, uniform, side="right")
