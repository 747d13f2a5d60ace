"""Random generators that are derived from their purpose.

Each random choice of a run uses its own generator, for example `generator(seed, "shuffle", t, client)`. The
result therefore does not depend on the order of clients, the number of workers or interruptions.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(*parts: int | str) -> int:
    """Return a 128-bit number that depends only on `parts`, on every machine and Python version.

    >>> key(0, "cohort", 3) == key(0, "cohort", 3)
    True
    >>> key(0, "cohort", 13) == key(0, "cohort1", 3)
    False
    """
    text = "\x1f".join(f"str:{part}" if isinstance(part, str) else f"int:{int(part)}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(*parts: int | str) -> np.random.Generator:
    """Return a NumPy generator for the purpose given by `parts`."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


def torch_seed(*parts: int | str) -> int:
    """Return a seed for a torch generator. It has 63 bits, which all torch versions accept."""
    return key(*parts) >> 65
