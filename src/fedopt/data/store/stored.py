"""Open a store and read its clients.

    DIR/manifest.json                          content and source of the store
    DIR/<split>/ids.{values,offsets}.npy       sorted client ids
    DIR/<split>/offsets.npy                    client i has the examples offsets[i] to offsets[i + 1]
    DIR/<split>/<column>.npy                   a flat column: a row per example
    DIR/<split>/<column>.{values,offsets}.npy  a ragged column

Opening reads only the manifest. Arrays are memory-mapped: a client is a slice, and processes share the page
cache of the operating system.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fedopt.data.store.checks import check_files, damaged, inaccessible
from fedopt.data.store.columns import IDS, MANIFEST, OFFSETS, Array, Column, Ragged
from fedopt.data.store.manifest import read_manifest
from fedopt.data.store.remote_store import download_store
from fedopt.errors import DataError, unknown
from fedopt.remote.location import StrPath, parse_location

_VERSION = re.compile(rb'"fedopt": "[^"]*"')
_CHECKSUMS = re.compile(rb',\n "sha256": \{.*', re.DOTALL)  # of the files and of the manifest, at its end


@dataclass(frozen=True)
class Store:
    """A dataset on disk."""

    directory: Path
    manifest: Mapping[str, Any]

    @property
    def source(self) -> Sequence[Mapping[str, Any]]:
        """The imported files: name, checksum and size."""
        return tuple(self.manifest["source"])

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return str(self.manifest["name"])

    def split(self, name: str) -> StoredSplit:
        """Return the clients of `train`, `test` or another split."""
        if name not in self.manifest["splits"]:
            raise unknown(f"split of {self.directory}", name, self.manifest["splits"])
        return StoredSplit(self.directory / name, self.manifest["splits"][name])

    def text(self, name: str) -> str:
        """Return a text file of the store, for example a vocabulary."""
        if name not in self.manifest.get("texts", []):
            raise unknown(f"text of {self.directory}", name, self.manifest.get("texts", []))
        path = self.directory / name
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise inaccessible(path, error) from None
        except UnicodeDecodeError as error:
            raise damaged(path, str(error)) from None


class StoredSplit:
    """The clients of one split, by position in the sorted ids. Each process opens the arrays on first use."""

    def __init__(self, directory: Path, summary: Mapping[str, Any]) -> None:
        self.directory, self.summary = directory, summary

    def __reduce__(self) -> tuple[type[StoredSplit], tuple[Path, Mapping[str, Any]]]:
        return StoredSplit, (self.directory, self.summary)  # workers open the arrays themselves

    @cached_property
    def ids(self) -> ClientIds:
        return ClientIds(self.directory, self.summary["clients"])

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        path = self.directory / OFFSETS
        offsets = _memory_map(path)
        _check_offsets(path, offsets, self.summary["clients"], self.summary["examples"])
        if (np.diff(offsets) < 0).any():
            raise damaged(path, "the offsets of clients decrease")
        return offsets

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of examples of each client, (clients,)."""
        sizes = np.diff(self.offsets)
        sizes.flags.writeable = False
        return sizes

    def columns(self, client: int) -> dict[str, Column]:
        """Return the examples of one client as slices of the memory-mapped arrays."""
        if not 0 <= client < self.summary["clients"]:
            raise IndexError(f"client {client} of {self.summary['clients']}")
        start, stop = int(self.offsets[client]), int(self.offsets[client + 1])
        columns: dict[str, Column] = {}
        for name, column in self._arrays.items():
            if isinstance(column, Ragged):
                offsets = column.offsets[start : stop + 1]
                if (np.diff(offsets) < 0).any():
                    raise damaged(self.directory / f"{name}.offsets.npy", "the offsets of rows decrease")
                columns[name] = Ragged(column.values[offsets[0] : offsets[-1]], offsets - offsets[0])
            else:
                columns[name] = column[start:stop]
        return columns

    def column(self, name: str) -> Column:
        """Return one column of all clients."""
        if name not in self._arrays:
            raise unknown(f"column of {self.directory}", name, self._arrays)
        return self._arrays[name]

    @cached_property
    def _arrays(self) -> dict[str, Column]:
        arrays: dict[str, Column] = {}
        rows = self.summary["examples"]
        for name, spec in self.summary["columns"].items():
            if spec.get("ragged"):
                arrays[name] = _open_ragged(self.directory / name, rows, spec["dtype"])
            else:
                path = self.directory / f"{name}.npy"
                array = arrays[name] = _memory_map(path)
                if array.shape != (rows, *spec["shape"]) or array.dtype != spec["dtype"]:
                    raise damaged(path, f"it has {array.dtype} of shape {array.shape}, unlike the manifest")
        return arrays


class ClientIds(Sequence[str]):
    """Sorted client ids, decoded on access."""

    def __init__(self, directory: Path, clients: int) -> None:
        self._directory, self._clients = directory, clients
        self._values, self._offsets = _open_ragged(directory / IDS, clients, "|u1")

    def __reduce__(self) -> tuple[type[ClientIds], tuple[Path, int]]:
        return ClientIds, (self._directory, self._clients)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._decode(self._values[self._offsets[index] : self._offsets[index + 1]].tobytes())

    def _decode(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise damaged(self._directory / f"{IDS}.values.npy", str(error)) from None

    def __iter__(self) -> Iterator[str]:
        data, offsets = self._values.tobytes(), self._offsets.tolist()
        for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
            yield self._decode(data[start:stop])

    def __contains__(self, value: object) -> bool:
        position = bisect_left(self, value) if isinstance(value, str) else len(self)
        return position < len(self) and self[position] == value

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        """Return the position of an id, by bisection."""
        end = len(self) if stop is None else stop
        position = bisect_left(self, value, start, end)
        if position >= end or self[position] != value:
            raise ValueError(f"{value!r} is not a client")
        return position

    def __repr__(self) -> str:
        return f"<{len(self)} client ids>"


def local_directory(source: StrPath) -> Path:
    """Return the directory of a store. A store at a URL is downloaded once.

    Args:
        source: a directory or a URL.

    Returns:
        The local directory.

    Examples:
        >>> local_directory("data/emnist")
        PosixPath('data/emnist')
    """
    location = parse_location(source)
    return location if isinstance(location, Path) else download_store(location)


def is_store(directory: Path) -> bool:
    """Whether the directory holds a store, which may be damaged.

    Args:
        directory: the directory.

    Returns:
        Whether it has the manifest of a store.

    Examples:
        >>> is_store(Path("nowhere"))
        False
    """
    return (directory / MANIFEST).is_file()


def manifest_checksum(source: StrPath) -> str | None:
    """Check a store and return the checksum of its manifest, which lists all files; None without a store.

    The version of fedopt that imported the data does not count. `source` is a directory or a URL.
    """
    directory = local_directory(source)
    if not is_store(directory):
        return None
    open_store(directory)
    # As the first version wrote it, so that the checksums in runs of 0.1.0 and 0.2.0 stay valid.
    content = _VERSION.sub(b'"fedopt": "0.1.0"', (directory / MANIFEST).read_bytes(), count=1)
    return "sha256:" + hashlib.sha256(_CHECKSUMS.sub(b"\n}", content)).hexdigest()


def open_store(source: StrPath, *, read_all: bool = False) -> Store:
    """Open an imported dataset.

    Args:
        source: its directory or URL.
        read_all: whether all files are read and compared with the manifest; see `check_files`.

    Returns:
        The store. A file that is missing or differs from the manifest raises a `DataError`.

    Examples:
        >>> open_store("nowhere")
        Traceback (most recent call last):
        fedopt.errors.DataError: nowhere holds no imported data ...
    """
    directory = local_directory(source)
    path = directory / MANIFEST
    try:
        manifest = read_manifest(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{directory} holds no imported data ({MANIFEST} not found); create it with "
            f"`fedopt data import NAME PATH --to {directory}`",
            path=directory,
        ) from None
    except OSError as error:
        raise inaccessible(path, error) from None
    except ValueError as error:
        raise damaged(path, str(error)) from None
    check_files(directory, manifest, read_all=read_all)
    return Store(directory, manifest)


def _open_ragged(stem: Path, rows: int, dtype: str) -> Ragged:
    paths = Path(f"{stem}.values.npy"), Path(f"{stem}.offsets.npy")
    values, offsets = map(_memory_map, paths)
    if values.ndim != 1 or values.dtype != dtype:
        raise damaged(paths[0], f"it has {values.dtype} of shape {values.shape}, unlike the manifest")
    _check_offsets(paths[1], offsets, rows, len(values))
    return Ragged(values, offsets)


def _check_offsets(path: Path, offsets: Array, rows: int, end: int) -> None:
    """Check type, length and ends of offsets. Reading all of them would take long for large datasets."""
    if offsets.shape != (rows + 1,) or offsets.dtype != np.int64:
        raise damaged(path, f"it has {offsets.dtype} of shape {offsets.shape} for {rows} rows")
    if (offsets[0], offsets[-1]) != (0, end):
        raise damaged(path, f"it has offsets from {offsets[0]} to {offsets[-1]}, not from 0 to {end}")


def _memory_map(path: Path) -> Array:
    try:
        array: Array = np.lib.format.open_memmap(path, mode="r")
    except PermissionError as error:
        raise inaccessible(path, error) from None
    except (OSError, ValueError, TypeError, EOFError, OverflowError, SyntaxError, TokenError) as error:
        raise damaged(path, f"invalid header ({error})") from None
    return array.view(np.ndarray)  # slicing a memmap is ten times slower than slicing an array
