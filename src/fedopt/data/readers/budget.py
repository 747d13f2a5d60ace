"""Limits on the bytes and the time of an import, because a small file can declare any amount of data.

The limits grow with the size of the files. Images, text and tables stay far below them.
"""

from __future__ import annotations

import os
import time

MAX_RATIO = 100  # bytes that are unpacked and decoded, per byte of the files
MIN_BYTES = 64 << 20  # this many are always allowed
MAX_ARRAY = 128 << 20  # bytes of one field of one client, which is in memory as a whole
MIN_SECONDS = 120.0
BYTES_PER_SECOND = 100_000  # a slower import is stopped


def stored_bytes(status: os.stat_result) -> int:
    """Return the size of a file without the holes of a sparse file."""
    return min(status.st_size, 512 * status.st_blocks)


class Budget:
    """The bytes that an import may unpack and decode, and the time that it may take.

    `factor` multiplies all limits, for files that the user trusts. It may be infinite.
    """

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self._size = self._used = 0  # bytes of the files, and bytes unpacked and decoded
        self._start = time.monotonic()

    def add_file(self, status: os.stat_result) -> None:
        """Raise the limits by the size of a file."""
        self._size += stored_bytes(status)

    @property
    def bytes(self) -> float:
        """The largest number of bytes that may be unpacked and decoded."""
        return self.factor * max(MIN_BYTES, MAX_RATIO * self._size)

    @property
    def array_bytes(self) -> float:
        """The largest number of bytes that may be in memory as one array."""
        return min(self.bytes, self.factor * MAX_ARRAY)

    @property
    def seconds(self) -> float:
        """The longest time that the import may take."""
        return self.factor * (MIN_SECONDS + self._size / BYTES_PER_SECOND)

    @property
    def is_late(self) -> bool:
        """Whether the import has taken too long."""
        return time.monotonic() - self._start > self.seconds

    def reserve(self, size: int) -> str:
        """Count bytes that will be unpacked or decoded. Return the exceeded limit, or an empty text."""
        self._used += size
        if self._used > self.bytes:
            return f"holds more than {self.bytes:,.0f} bytes of data, far more than the size of the files"
        return f"takes longer than {self.seconds:,.0f} seconds to read" if self.is_late else ""
