"""Randomness is derived, never carried.

Every random choice of a run comes from a generator made on the spot from what the choice is for,
`generator(seed, "shuffle", t, client)`, so it does not depend on the order in which clients run, on
the number of workers, or on where a run was interrupted.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(*parts: int | str) -> int:
    """A 128-bit number that is a function of `parts` alone, on every machine and Python.

    >>> key(0, "cohort", 3) == key(0, "cohort", 3)
    True
    >>> key(0, "cohort", 13) == key(0, "cohort1", 3)
    False
    """
    text = "\x1f".join(f"str:{part}" if isinstance(part, str) else f"int:{int(part)}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(*parts: int | str) -> np.random.Generator:
    """A NumPy generator for the purpose that `parts` name."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


def torch_seed(*parts: int | str) -> int:
    """A seed for a torch generator (63 bits, which every torch version takes)."""
    return key(*parts) >> 65
