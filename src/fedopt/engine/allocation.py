"""Freed vectors stay with the process: the next one takes their place.

By default glibc gives the pages of a large vector back to the system and faults them in again one by one for
the next, which costs as much as several passes over the vector. Other systems and C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import sys

_KEPT = 512 << 20  # bytes that may lie unused at the end of the heap
ENVIRONMENT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(_KEPT)}  # for processes to be started

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """The same for the process that calls it; not for one that is somebody else's."""
    _call("mallopt", _M_MMAP_MAX, 0)
    _call("mallopt", _M_TRIM_THRESHOLD, _KEPT)


def give_back() -> None:
    """Give the system what lies unused."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
    if function is not None:
        function(*arguments)
