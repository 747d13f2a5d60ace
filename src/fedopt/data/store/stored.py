"""The store: every imported dataset in one layout of memory-mapped arrays.

DIR/manifest.json                     what is in it and from where
DIR/<split>/ids.*.npy                 client ids, sorted
DIR/<split>/offsets.npy               client i has the examples offsets[i] to offsets[i + 1]
DIR/<split>/<column>.npy              a row per example, or for ragged columns
DIR/<split>/<column>.{values,offsets}.npy

Opening reads the manifest alone; a client is a slice; workers share the pages of the operating system.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fedopt.data.store.columns import FORMAT, IDS, MANIFEST, OFFSETS, Array, Column, Ragged
from fedopt.errors import UserError, unknown


@dataclass(frozen=True)
class Store:
    """A dataset on disk."""

    directory: Path
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The dataset it was imported as."""
        return str(self.manifest["name"])

    def split(self, name: str) -> StoredSplit:
        """The clients of `train`, `test` or another split that the manifest lists."""
        if name not in self.manifest["splits"]:
            raise unknown(f"split of {self.directory}", name, self.manifest["splits"])
        return StoredSplit(self.directory / name, self.manifest["splits"][name])

    def text(self, name: str) -> str:
        """A text kept with the data, such as a vocabulary."""
        if name not in self.manifest.get("texts", []):
            raise unknown(f"text of {self.directory}", name, self.manifest.get("texts", []))
        return (self.directory / name).read_text(encoding="utf-8")


class StoredSplit:
    """The clients of one split, by position in the sorted ids. Maps are opened on first use, per process."""

    def __init__(self, directory: Path, summary: Mapping[str, Any]) -> None:
        self.directory, self.summary = directory, summary

    def __reduce__(self) -> tuple[type[StoredSplit], tuple[Path, Mapping[str, Any]]]:
        return StoredSplit, (self.directory, self.summary)  # a worker opens its own maps

    @cached_property
    def ids(self) -> ClientIds:
        return ClientIds(self.directory)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        return _map(self.directory / OFFSETS)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Examples of each client, (clients,)."""
        sizes = np.diff(self.offsets)
        sizes.flags.writeable = False
        return sizes

    def columns(self, client: int) -> dict[str, Column]:
        """The examples of one client: slices of the maps, read only where they are used."""
        if not 0 <= client < self.summary["clients"]:
            raise IndexError(f"client {client} of {self.summary['clients']}")
        start, stop = int(self.offsets[client]), int(self.offsets[client + 1])
        found: dict[str, Column] = {}
        for name, column in self._maps.items():
            if isinstance(column, Ragged):
                offsets = column.offsets[start : stop + 1]
                found[name] = Ragged(column.values[offsets[0] : offsets[-1]], offsets - offsets[0])
            else:
                found[name] = column[start:stop]
        return found

    def column(self, name: str) -> Column:
        """One column of all clients."""
        if name not in self._maps:
            raise unknown(f"column of {self.directory}", name, self._maps)
        return self._maps[name]

    @cached_property
    def _maps(self) -> dict[str, Column]:
        maps: dict[str, Column] = {}
        for name, spec in self.summary["columns"].items():
            stem = self.directory / name
            if spec.get("ragged"):
                maps[name] = Ragged(_map(Path(f"{stem}.values.npy")), _map(Path(f"{stem}.offsets.npy")))
            else:
                maps[name] = _map(Path(f"{stem}.npy"))
        return maps


class ClientIds(Sequence[str]):
    """Client ids in their order, decoded when asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._values = _map(directory / f"{IDS}.values.npy")
        self._offsets = _map(directory / f"{IDS}.offsets.npy")

    def __reduce__(self) -> tuple[type[ClientIds], tuple[Path]]:
        return ClientIds, (self._directory,)

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
        return self._values[self._offsets[index] : self._offsets[index + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        data, offsets = self._values.tobytes(), self._offsets.tolist()
        for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
            yield data[start:stop].decode()

    def __contains__(self, value: object) -> bool:
        at = bisect_left(self, value) if isinstance(value, str) else len(self)
        return at < len(self) and self[at] == value

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        """The position of an id, by bisection."""
        end = len(self) if stop is None else stop
        at = bisect_left(self, value, start, end)
        if at >= end or self[at] != value:
            raise ValueError(f"{value!r} is not a client")
        return at

    def __repr__(self) -> str:
        return f"<{len(self)} client ids>"


def is_store(directory: Path) -> bool:
    """Whether a store lies here, damaged or not."""
    return (directory / MANIFEST).is_file()


def open_store(directory: Path) -> Store:
    """Open an imported dataset; no array is read. A store with missing or cut files is refused."""
    directory = Path(directory)
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{directory} holds no imported data ({MANIFEST} not found); make it with "
            f"`fedopt data import NAME PATH --to {directory}`"
        ) from None
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(manifest, dict) or not {"format", "name", "splits", "files"} <= set(manifest):
        raise _damaged(path, "it is no manifest of a store")
    if manifest["format"] != FORMAT:
        raise UserError(f"{directory} has store format {manifest['format']!r}, not {FORMAT}; import it again")
    for name, size in manifest["files"].items():
        _check_size(directory / name, size)
    return Store(directory, manifest)


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from None
    if found != size:
        raise _damaged(path, f"{found} bytes where {size} were written")


def _map(path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, str(error)) from None
    return array.view(np.ndarray)  # slicing a memmap costs ten times as much as slicing an array


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}; import the data again")
