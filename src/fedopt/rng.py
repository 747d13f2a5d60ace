"""Random generators that are derived from their purpose.

Each random choice of a run uses its own generator, for example `generator(seed, "shuffle", t, client)`. The
result therefore does not depend on the order of clients, the number of workers or interruptions.
"""

from __future__ import annotations

import hashlib
import threading

import numpy as np
from numpy.typing import NDArray


def key(*parts: int | str) -> int:
    """Return a 128-bit number that depends only on `parts`, on every machine and Python version.

    >>> key(0, "cohort", 3) == key(0, "cohort", 3)
    True
    >>> key(0, "cohort", 13) == key(0, "cohort1", 3)
    False
    """
    return int.from_bytes(_digest(parts), "little")


def _digest(parts: tuple[int | str, ...]) -> bytes:
    text = "\x1f".join([f"str:{part}" if isinstance(part, str) else f"int:{int(part)}" for part in parts])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def generator(*parts: int | str) -> np.random.Generator:
    """Return a NumPy generator for the purpose given by `parts`."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


def permutation(n: int, *parts: int | str) -> NDArray[np.int64]:
    """Return `generator(*parts).permutation(n)` in a third of the time.

    A new generator reads random bytes of the system, although its key is given. Setting the state of an
    existing one does not.

    >>> bool((permutation(9, 0, "shuffle") == generator(0, "shuffle").permutation(9)).all())
    True
    """
    words = np.frombuffer(_digest(parts), dtype="<u8")
    with _lock:
        _philox.state = {
            "bit_generator": "Philox",
            "state": {"counter": _ZEROS, "key": words},
            "buffer": _ZEROS,
            "buffer_pos": 4,  # empty
            "has_uint32": 0,
            "uinteger": 0,
        }
        return _reused.permutation(n)


_ZEROS = np.zeros(4, dtype=np.uint64)
_philox = np.random.Philox(key=0)
_reused = np.random.Generator(_philox)
_lock = threading.Lock()


def torch_seed(*parts: int | str) -> int:
    """Return a seed for a torch generator. It has 63 bits, which all torch versions accept."""
    return key(*parts) >> 65
