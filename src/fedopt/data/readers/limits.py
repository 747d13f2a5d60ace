"""Limits of an import, because a small file can declare any amount of data and any path.

Bytes and time grow with the size of the files: images, text and tables stay far below the limits. The option
`--limit-factor` multiplies them, for files that the user trusts.
"""

from __future__ import annotations

import os
import re
import resource
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedopt.errors import DataError

MAX_RATIO = 100  # bytes that are unpacked and decoded, per byte of the files
MIN_BYTES = 64 << 20  # this many are always allowed
MAX_ARRAY = 128 << 20  # bytes of one field of one client, which is in memory as a whole
MIN_SECONDS = 120.0
BYTES_PER_SECOND = 100_000  # a slower import is stopped
MIN_MEMORY, MEMORY_RATIO = 2 << 30, 20  # JSON needs about ten times the size of the file
MAX_FILES = 100_000  # of a directory, and members of an archive
MAX_DEPTH = 2  # an archive of compressed files
MAX_HEADER = 1 << 16  # bytes of the headers of one member
MAX_PATH, MAX_NAME = 1000, 255  # bytes of the path of a member, and of a part of it; systems allow 4096
MAX_ID = 1000  # bytes of a client id
MAX_TEXT = 1000  # bytes of a client, a split or a label of a table
MAX_COLUMNS = 50_000  # of a table
MIN_BYTES_PER_LIST = 20  # of LEAF's JSON, on average; an example is a list of 784 numbers, or text

RAISE_LIMITS = "if you trust the files, raise the limits with --limit-factor 10"


class Refused(ValueError):
    """A file exceeds a limit or has a path that is not allowed."""


class Budget:
    """The bytes that an import may unpack and decode, and the time that it may take.

    `factor` multiplies all limits. It may be infinite.
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


def stored_bytes(status: os.stat_result) -> int:
    """Return the size of a file without the holes of a sparse file."""
    return min(status.st_size, 512 * status.st_blocks)


# -- memory


@contextmanager
def limited_memory(path: Path, factor: float) -> Iterator[None]:
    """Limit the memory that this process allocates, in proportion to the size of the files at `path`.

    A library may allocate what a damaged file asks for before any other check can see it. The limit holds for
    the whole process, so only the command line uses it. It has an effect on Linux only.
    """
    files = [path, *(Path(parent, name) for parent, _, names in os.walk(path) for name in names)]
    size = sum(stored_bytes(file.stat()) for file in files if os.path.isfile(file))
    limit = factor * (MIN_MEMORY + MEMORY_RATIO * size)
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


def _allocated() -> int:
    """Return the bytes of memory that the process has allocated, or 0 where this is not known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


# -- archives


class CountedStream:
    """Decompressed bytes, which are counted by `reserve`. Skipped bytes are decompressed too, so they count.

    The headers of a member, such as a long name or the map of a sparse file, are limited to MAX_HEADER.
    `tarfile` keeps them in memory, and reading a map takes time that grows with the square of its size.
    """

    def __init__(self, reserve: Callable[[int], None], stream: IO[bytes] | BufferedIOBase) -> None:
        self._reserve, self._stream = reserve, stream
        self._header: int | None = None  # bytes of the current header

    @contextmanager
    def header(self) -> Iterator[None]:
        """Limit the bytes that are read in the block."""
        self._header = 0
        try:
            yield
        finally:
            self._header = None

    def read(self, size: int) -> bytes:
        if self._header is not None:
            self._header += size
            if self._header > MAX_HEADER:
                raise Refused(f"has a header of {self._header:,} bytes; allowed: {MAX_HEADER:,}")
        content = self._stream.read(size)
        self._reserve(len(content))
        return content

    def seek(self, position: int) -> int:
        self._reserve(max(0, position - self._stream.tell()))
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


def check_count(members: int) -> None:
    if members > MAX_FILES:
        raise Refused(f"has more than {MAX_FILES:,} members")


def member_path(to: Path, name: str) -> Path:
    """Return the path of a member under `to`. Members outside `to` and members of one name are refused.

    The filters of `tarfile` are not for zip archives, and would extract an absolute path elsewhere.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or re.match("[A-Za-z]:", name) or "\0" in name:
        raise Refused(f"member {name[:100]!r} lies outside the directory; the archive is rejected")
    if len(os.fsencode(name)) > MAX_PATH or any(len(os.fsencode(part)) > MAX_NAME for part in parts):
        raise Refused(f"member {name[:100]!r}... has a name that is too long")
    target = to.joinpath(*parts)
    if os.path.lexists(target) or any(parent.is_file() for parent in target.parents if parent != to):
        raise Refused(f"has two members {name[:100]!r}")
    return target


# -- texts of HDF5

# On disk, a text of variable length is its length, the address of a heap and an index in it. Many texts can
# refer to the same part of the file, so the declared size of a dataset says nothing about their size.
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])


def text_bytes(data: Any, file_size: int) -> int:
    """Return the number of bytes of all texts of an HDF5 dataset, or an upper bound if it is not known."""
    import h5py

    if h5py.check_string_dtype(data.dtype).length is not None:  # texts of fixed length
        return int(data.nbytes)
    if data.chunks is None:
        start = data.id.get_offset()  # None: nothing is stored, or the few texts are in the header
        return (
            0
            if start is None
            else _sum_lengths(np.fromfile(data.file.filename, REFERENCE, data.size, offset=start))
        )
    filters = data.id.get_create_plist()
    kinds = [filters.get_filter(index)[0] for index in range(filters.get_nfilters())]
    if kinds not in ([], [h5py.h5z.FILTER_DEFLATE]):
        return int(data.size * file_size)  # every text could be the whole file
    size, total = int(np.prod(data.chunks)) * REFERENCE.itemsize, 0
    for index in range(data.id.get_num_chunks()):
        skipped_filters, raw = data.id.read_direct_chunk(data.id.get_chunk_info(index).chunk_offset)
        if kinds and not skipped_filters:
            raw = zlib.decompressobj().decompress(raw, size)
        whole = len(raw) // REFERENCE.itemsize * REFERENCE.itemsize
        total += _sum_lengths(np.frombuffer(raw[:whole], REFERENCE))
    return total


def _sum_lengths(references: NDArray[Any]) -> int:
    return int(references["length"].sum(dtype=np.int64))
