"""Keep freed memory in the process, so that the next large vector can reuse it.

By default glibc returns the pages of a large vector to the system and faults them in again one by one for the
next vector. This costs as much as several passes over the vector. Other C libraries are not changed.
"""

from __future__ import annotations

import ctypes
import sys

_KEPT_BYTES = 512 << 20  # unused memory that may stay at the end of the heap
# For processes that are started later.
ENVIRONMENT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES)}

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Change the settings of this process. Only a program should call this, never a library function."""
    _call_glibc("mallopt", _M_MMAP_MAX, 0)
    _call_glibc("mallopt", _M_TRIM_THRESHOLD, _KEPT_BYTES)


def release_unused_memory() -> None:
    """Return unused memory to the system."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
    if function is not None:
        function(*arguments)
