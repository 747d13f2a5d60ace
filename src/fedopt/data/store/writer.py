"""Write a store client by client. Memory holds one client at a time.

Each column is a .npy file. Its header is written twice: first to reserve the space, and at the end with the
number of rows. Clients may arrive in any order; if they are not sorted by id, the columns are rewritten in
sorted order at the end.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedopt.data.store.checks import sha256
from fedopt.data.store.columns import (
    FORMAT,
    IDS,
    MANIFEST,
    OFFSETS,
    Array,
    ClientColumns,
    Column,
    Ragged,
    offsets_from_lengths,
    ragged,
    text_rows,
)
from fedopt.data.store.manifest import content_checksum
from fedopt.errors import DataError
from fedopt.files import disk_errors, replace_directory, sync, temporary_directory
from fedopt.version import __version__

ClientStream = Iterable[tuple[str, ClientColumns]]
BUFFER = 1 << 20


def write_store(
    directory: Path,
    name: str,
    source: Sequence[Mapping[str, Any]],
    splits: Mapping[str, ClientStream],
    texts: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a store atomically, replacing the one in `directory`.

    `source` lists the imported files as {"file", "sha256", "bytes"}. A column of a client is an array with a
    row per example, a `Ragged`, or a list of one-dimensional arrays.
    """
    directory = directory.resolve()
    with temporary_directory(directory) as scratch:
        write_files(scratch / "store", directory, name, source, splits, texts, notes)
        replace_directory(directory, scratch / "store")


def write_files(
    directory: Path,
    target: Path,
    name: str,
    source: Sequence[Mapping[str, Any]],
    splits: Mapping[str, ClientStream],
    texts: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of a store into the new `directory`, the manifest last. Errors name `target`."""
    with disk_errors(target):
        directory.mkdir()
    summaries = {
        split: _write_split(directory / split, target, split, clients) for split, clients in splits.items()
    }
    with disk_errors(target):
        for title, text in (texts or {}).items():
            _write_durably(directory / title, text.encode())
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        paths = {str(path.relative_to(directory)): path for path in files}
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "name": name,
            "fedopt": __version__,
            "source": [dict(item) for item in source],
            "splits": summaries,
            "texts": sorted(texts or {}),
            "notes": dict(notes or {}),
            "files": {name: path.stat().st_size for name, path in paths.items()},
            "sha256": {name: sha256(path) for name, path in paths.items()},
        }
        manifest["checksum"] = content_checksum(json.loads(json.dumps(manifest)))
        _write_durably(directory / MANIFEST, json.dumps(manifest, indent=1).encode())


def _write_split(directory: Path, target: Path, split: str, clients: ClientStream) -> dict[str, Any]:
    with disk_errors(target):
        directory.mkdir()
    writer = _SplitWriter(directory, split)
    try:
        for client, columns in clients:
            with disk_errors(target):
                writer.add(client, columns)
        with disk_errors(target):
            return writer.finish()
    finally:
        writer.close()


def _write_durably(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    sync(path)


class _NpyFile:
    """A .npy file to which rows are appended."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.path, self.shape, self.rows = path, shape, 0
        self.dtype = dtype.newbyteorder("<")
        self.file: BinaryIO = open(path, "wb", buffering=BUFFER)
        self.file.write(self._header())

    def append(self, rows: Array) -> None:
        if len(rows):
            self.file.write(np.ascontiguousarray(rows, dtype=self.dtype).view(np.uint8).data)
            self.rows += len(rows)

    def finish(self) -> None:
        """Write the final number of rows and flush to the disk."""
        self.file.seek(0)
        self.file.write(self._header())
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def _header(self) -> bytes:
        # NumPy pads the header, so its length does not depend on the number of rows.
        header = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(self.dtype)
        np.lib.format.write_array_header_1_0(
            header, {"descr": descr, "fortran_order": False, "shape": (self.rows, *self.shape)}
        )
        return header.getvalue()


class _FlatColumn:
    """A column with one row of fixed shape per example."""

    def __init__(self, directory: Path, name: str, first: Array) -> None:
        self.path, self.first = directory / f"{name}.npy", first
        self.files = [_NpyFile(self.path, first.dtype, first.shape[1:])]

    def append(self, rows: Array) -> None:
        self.files[0].append(rows)

    def fits(self, rows: Column) -> bool:
        file = self.files[0]
        return (
            not isinstance(rows, Ragged)
            and rows.dtype.newbyteorder("<") == file.dtype
            and rows.shape[1:] == file.shape
        )

    def summary(self) -> dict[str, Any]:
        file = self.files[0]
        return {"dtype": file.dtype.str, "shape": list(file.shape)}

    def read(self, start: int, stop: int) -> Array:
        rows: Array = self.array[start:stop]
        return rows

    def open(self) -> None:
        self.array = np.load(self.path, mmap_mode="r", allow_pickle=False)


class _RaggedColumn:
    """A column of rows of different lengths."""

    def __init__(self, directory: Path, name: str, first: Ragged) -> None:
        self.paths = directory / f"{name}.values.npy", directory / f"{name}.offsets.npy"
        self.first = first
        self.files = [
            _NpyFile(self.paths[0], first.values.dtype, ()),
            _NpyFile(self.paths[1], np.dtype(np.int64), ()),
        ]
        self.files[1].append(np.zeros(1, dtype=np.int64))

    def append(self, rows: Ragged) -> None:
        values, offsets = self.files
        start = values.rows - int(rows.offsets[0])
        values.append(rows.values[rows.offsets[0] : rows.offsets[-1]])
        offsets.append(rows.offsets[1:] + start)

    def fits(self, rows: Column) -> bool:
        return isinstance(rows, Ragged) and rows.values.dtype == self.first.values.dtype

    def summary(self) -> dict[str, Any]:
        return {"dtype": self.files[0].dtype.str, "ragged": True}

    def read(self, start: int, stop: int) -> Ragged:
        offsets = np.array(self.arrays[1][start : stop + 1])
        return Ragged(self.arrays[0][offsets[0] : offsets[-1]], offsets - offsets[0])

    def open(self) -> None:
        self.arrays = [np.load(path, mmap_mode="r", allow_pickle=False) for path in self.paths]


class _SplitWriter:
    """Writes the clients of one split."""

    def __init__(self, directory: Path, split: str) -> None:
        self.directory, self.split = directory, split
        self.sizes: dict[str, int] = {}  # in the order of arrival
        self.columns: dict[str, _FlatColumn | _RaggedColumn] = {}

    def add(self, client: str, columns: ClientColumns) -> None:
        if not client:
            raise self._error(client, "has an empty id")
        if client in self.sizes:
            raise self._error(client, "occurs twice; ids must differ")
        arrays = {name: self._as_column(client, name, value) for name, value in columns.items()}
        lengths = {_count_rows(value) for value in arrays.values()}
        if len(lengths) != 1:
            raise self._error(client, f"has columns of different lengths: {sorted(lengths)}")
        if lengths == {0}:
            raise self._error(client, "has no examples; remove it")
        self._append(client, arrays)
        self.sizes[client] = lengths.pop()

    def finish(self) -> dict[str, Any]:
        """Sort the columns by client id, close the files and return the summary for the manifest."""
        if not self.sizes:
            raise DataError(f"split {self.split!r} has no clients", path=self.directory)
        for column in self.columns.values():
            for file in column.files:
                file.finish()
        ids = sorted(self.sizes)
        if ids != list(self.sizes):
            self._sort(ids)
        sizes = [self.sizes[client] for client in ids]
        _save(self.directory / OFFSETS, offsets_from_lengths(sizes))
        names = text_rows([client.encode() for client in ids])
        _save(self.directory / f"{IDS}.values.npy", names.values)
        _save(self.directory / f"{IDS}.offsets.npy", names.offsets)
        columns = {name: column.summary() for name, column in self.columns.items()}
        return {"clients": len(ids), "examples": sum(sizes), "columns": columns}

    def close(self) -> None:
        """Close the files, including incomplete ones after an error."""
        for column in self.columns.values():
            for file in column.files:
                try:
                    file.file.close()
                except OSError:
                    pass

    def _append(self, client: str, arrays: Mapping[str, Column]) -> None:
        if not self.columns:
            self.columns = {name: _column(self.directory, name, value) for name, value in arrays.items()}
        if set(arrays) != set(self.columns):
            raise self._error(client, f"has columns {sorted(arrays)}, others have {sorted(self.columns)}")
        for name, value in arrays.items():
            column = self.columns[name]
            if not column.fits(value):
                raise self._error(
                    client, f"column {name!r} is {_describe_type(value)}, others have {column.summary()}"
                )
            column.append(value)  # type: ignore[arg-type]  # `fits` has checked it

    def _as_column(self, client: str, name: str, value: Array | Ragged | Sequence[Array]) -> Column:
        if isinstance(value, Ragged):
            return value
        if not isinstance(value, np.ndarray):
            return ragged(value, value[0].dtype if value else np.uint8)
        if value.dtype.kind not in "biuf" or value.ndim < 1:
            why = f"column {name!r} is {_describe_type(value)}; expected numbers, a row per example"
            raise self._error(client, why)
        return value

    def _error(self, client: str, why: str) -> DataError:
        return DataError(f"client {client!r} of split {self.split!r}: {why}", client=client)

    def _sort(self, ids: Sequence[str]) -> None:
        """Rewrite every column in the order of `ids`."""
        offsets = offsets_from_lengths(list(self.sizes.values())).tolist()
        start = dict(zip(self.sizes, offsets, strict=False))
        for name, old in self.columns.items():
            old.open()
            new = self.columns[name] = _column(self.directory, f"{name}.sorted", old.first)
            for client in ids:
                rows = old.read(start[client], start[client] + self.sizes[client])
                new.append(rows)  # type: ignore[arg-type]
            for old_file, new_file in zip(old.files, new.files, strict=True):
                new_file.finish()
                os.replace(new_file.path, old_file.path)


def _column(directory: Path, name: str, first: Column) -> _FlatColumn | _RaggedColumn:
    if isinstance(first, Ragged):
        return _RaggedColumn(directory, name, first)
    return _FlatColumn(directory, name, first)


def _count_rows(column: Column) -> int:
    return len(column.offsets) - 1 if isinstance(column, Ragged) else len(column)


def _describe_type(column: Column) -> str:
    if isinstance(column, Ragged):
        return f"ragged {column.values.dtype}"
    return f"{column.dtype} of shape {list(column.shape[1:])}"


def _save(path: Path, array: Array) -> None:
    np.save(path, array, allow_pickle=False)
    sync(path)
