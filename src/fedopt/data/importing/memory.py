"""Limit the memory of an import, in addition to the limits of the readers.

A library may allocate memory that a damaged file asks for before any check of the readers can see it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedopt.data.readers.base import RAISE_LIMITS
from fedopt.data.readers.budget import stored_bytes
from fedopt.errors import DataError

MIN_BYTES = 2 << 30
MAX_RATIO = 20  # JSON needs about ten times the size of the file


@contextmanager
def limited_memory(path: Path, factor: float) -> Iterator[None]:
    """Limit the memory that this process allocates, in proportion to the size of the files at `path`.

    The limit holds for the whole process, so only the command line uses it. It has an effect on Linux only.
    """
    limit = factor * (MIN_BYTES + MAX_RATIO * _size(path))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = _allocated() + limit
    if before[1] != resource.RLIM_INFINITY:
        allowed = min(allowed, before[1])
    if allowed < 1 << 62:
        resource.setrlimit(resource.RLIMIT_DATA, (int(allowed), before[1]))
    try:
        yield
    except MemoryError:
        message = f"{path} needs more than {limit / 1e9:,.1f} GB of memory; {RAISE_LIMITS}"
        raise DataError(message, path=path) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _size(path: Path) -> int:
    files = [Path(parent, name) for parent, _, names in os.walk(path) for name in names]
    return sum(stored_bytes(file.stat()) for file in [path, *files] if os.path.isfile(file))


def _allocated() -> int:
    """Return the bytes of memory that the process has allocated, or 0 where this is not known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
