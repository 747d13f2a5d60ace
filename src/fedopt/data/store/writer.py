"""Writing a store: client by client, in memory for one client, sorted by id at the end.

Each column is a .npy file whose header is written twice, first to reserve its space and at the end with the
number of rows. Clients may come in any order; where that is not the order of their ids, the columns are
written once more in that order.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedopt.data.store.columns import FORMAT, IDS, MANIFEST, OFFSETS, Array, Columns, Ragged, ends, ragged
from fedopt.errors import UserError
from fedopt.files import disk_errors, replace_directory, sync, temporary_directory
from fedopt.version import __version__

Clients = Iterable[tuple[str, Columns]]
BUFFER = 1 << 20


def write_store(
    directory: Path,
    name: str,
    source: Sequence[Mapping[str, Any]],
    splits: Mapping[str, Clients],
    texts: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a store that is visible only when it is whole; what was in `directory` is replaced.

    `source` lists the files it was made from, as {"file", "sha256", "bytes"}. A column of a client is an
    array with a row per example, a `Ragged`, or a list of one-dimensional arrays.
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
    splits: Mapping[str, Clients],
    texts: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """The files of a store that will be `target`, in a new directory; the manifest comes last."""
    with disk_errors(target):
        directory.mkdir()
    summaries = {
        split: _write_split(directory / split, target, split, clients) for split, clients in splits.items()
    }
    with disk_errors(target):
        for title, text in (texts or {}).items():
            _write_durably(directory / title, text.encode())
        manifest = {
            "format": FORMAT,
            "name": name,
            "fedopt": __version__,
            "source": [dict(item) for item in source],
            "splits": summaries,
            "texts": sorted(texts or {}),
            "notes": dict(notes or {}),
            "files": {
                str(path.relative_to(directory)): path.stat().st_size
                for path in sorted(directory.rglob("*"))
                if path.is_file()
            },
        }
        _write_durably(directory / MANIFEST, json.dumps(manifest, indent=1).encode())


def _write_split(directory: Path, target: Path, split: str, clients: Clients) -> dict[str, Any]:
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


class _Stream:
    """One .npy file to which rows are appended."""

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
        """Write the true number of rows and flush to the disk."""
        self.file.seek(0)
        self.file.write(self._header())
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def _header(self) -> bytes:
        # NumPy pads the header so that the first axis may grow in place: its length never changes.
        header = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(self.dtype)
        np.lib.format.write_array_header_1_0(
            header, {"descr": descr, "fortran_order": False, "shape": (self.rows, *self.shape)}
        )
        return header.getvalue()


class _Flat:
    """A column with one row of fixed shape per example."""

    def __init__(self, directory: Path, name: str, first: Array) -> None:
        self.path, self.first = directory / f"{name}.npy", first
        self.streams = [_Stream(self.path, first.dtype, first.shape[1:])]

    def append(self, rows: Array) -> None:
        self.streams[0].append(rows)

    def fits(self, rows: Array | Ragged) -> bool:
        stream = self.streams[0]
        return (
            not isinstance(rows, Ragged)
            and rows.dtype.newbyteorder("<") == stream.dtype
            and rows.shape[1:] == stream.shape
        )

    def summary(self) -> dict[str, Any]:
        stream = self.streams[0]
        return {"dtype": stream.dtype.str, "shape": list(stream.shape)}

    def read(self, start: int, stop: int) -> Array:
        rows: Array = self.map[start:stop]
        return rows

    def open(self) -> None:
        self.map = np.load(self.path, mmap_mode="r", allow_pickle=False)


class _RaggedColumn:
    """A column of rows of different lengths."""

    def __init__(self, directory: Path, name: str, first: Ragged) -> None:
        self.paths = directory / f"{name}.values.npy", directory / f"{name}.offsets.npy"
        self.first = first
        self.streams = [
            _Stream(self.paths[0], first.values.dtype, ()),
            _Stream(self.paths[1], np.dtype(np.int64), ()),
        ]
        self.streams[1].append(np.zeros(1, dtype=np.int64))

    def append(self, rows: Ragged) -> None:
        values, offsets = self.streams
        start = values.rows - int(rows.offsets[0])
        values.append(rows.values[rows.offsets[0] : rows.offsets[-1]])
        offsets.append(rows.offsets[1:] + start)

    def fits(self, rows: Array | Ragged) -> bool:
        return isinstance(rows, Ragged) and rows.values.dtype == self.first.values.dtype

    def summary(self) -> dict[str, Any]:
        return {"dtype": self.streams[0].dtype.str, "ragged": True}

    def read(self, start: int, stop: int) -> Ragged:
        offsets = np.array(self.maps[1][start : stop + 1])
        return Ragged(self.maps[0][offsets[0] : offsets[-1]], offsets - offsets[0])

    def open(self) -> None:
        self.maps = [np.load(path, mmap_mode="r", allow_pickle=False) for path in self.paths]


class _SplitWriter:
    """The clients of one split, appended one by one."""

    def __init__(self, directory: Path, split: str) -> None:
        self.directory, self.split = directory, split
        self.sizes: dict[str, int] = {}  # in order of arrival
        self.columns: dict[str, _Flat | _RaggedColumn] = {}

    def add(self, client: str, columns: Columns) -> None:
        where = f"client {client!r} of split {self.split!r}"
        if not client or client in self.sizes:
            raise UserError(f"{where} {'comes twice' if client else 'has an empty id'}; ids must differ")
        arrays = {name: _as_column(where, name, value) for name, value in columns.items()}
        lengths = {_rows(value) for value in arrays.values()}
        if len(lengths) != 1:
            raise UserError(f"{where} has columns of different lengths: {sorted(lengths)}")
        if lengths == {0}:
            raise UserError(f"{where} has no examples; leave it out")
        self._append(where, arrays)
        self.sizes[client] = lengths.pop()

    def finish(self) -> dict[str, Any]:
        """Close the files, sorted by client id, and say what is in them."""
        if not self.sizes:
            raise UserError(f"split {self.split!r} has no clients")
        self._finish_streams()
        ids = sorted(self.sizes)
        if ids != list(self.sizes):
            self._sort(ids)
        sizes = [self.sizes[client] for client in ids]
        _save(self.directory / OFFSETS, ends(sizes))
        names = [np.frombuffer(client.encode(), dtype=np.uint8) for client in ids]
        _save(self.directory / f"{IDS}.values.npy", ragged(names, np.uint8).values)
        _save(self.directory / f"{IDS}.offsets.npy", ragged(names, np.uint8).offsets)
        columns = {name: column.summary() for name, column in self.columns.items()}
        return {"clients": len(ids), "examples": sum(sizes), "columns": columns}

    def close(self) -> None:
        """Let go of the files, also of half-written ones on a full disk."""
        for column in self.columns.values():
            for stream in column.streams:
                try:
                    stream.file.close()
                except OSError:
                    pass

    def _append(self, where: str, arrays: Mapping[str, Array | Ragged]) -> None:
        if not self.columns:
            self.columns = {name: _column(self.directory, name, value) for name, value in arrays.items()}
        if set(arrays) != set(self.columns):
            raise UserError(f"{where} has columns {sorted(arrays)}, others have {sorted(self.columns)}")
        for name, value in arrays.items():
            column = self.columns[name]
            if not column.fits(value):
                raise UserError(f"{where}: column {name!r} is {_type(value)}, others have {column.summary()}")
            column.append(value)  # type: ignore[arg-type]  # `fits` has checked it

    def _finish_streams(self) -> None:
        for column in self.columns.values():
            for stream in column.streams:
                stream.finish()

    def _sort(self, ids: Sequence[str]) -> None:
        """Write every column once more, in the order of the ids."""
        start = dict(zip(self.sizes, ends(list(self.sizes.values())).tolist(), strict=False))
        for name, old in self.columns.items():
            old.open()
            new = self.columns[name] = _column(self.directory, f"{name}.sorted", old.first)
            for client in ids:
                rows = old.read(start[client], start[client] + self.sizes[client])
                new.append(rows)  # type: ignore[arg-type]
            for source, stream in zip(old.streams, new.streams, strict=True):
                stream.finish()
                os.replace(stream.path, source.path)


def _column(directory: Path, name: str, first: Array | Ragged) -> _Flat | _RaggedColumn:
    if isinstance(first, Ragged):
        return _RaggedColumn(directory, name, first)
    return _Flat(directory, name, first)


def _as_column(where: str, name: str, value: Array | Ragged | Sequence[Array]) -> Array | Ragged:
    if isinstance(value, Ragged):
        return value
    if not isinstance(value, np.ndarray):
        return ragged(value, value[0].dtype if value else np.uint8)
    if value.dtype.kind not in "biuf" or value.ndim < 1:
        raise UserError(f"{where}: column {name!r} is {_type(value)}; allowed: numbers, a row per example")
    return value


def _rows(column: Array | Ragged) -> int:
    return len(column.offsets) - 1 if isinstance(column, Ragged) else len(column)


def _type(column: Array | Ragged) -> str:
    if isinstance(column, Ragged):
        return f"ragged {column.values.dtype}"
    return f"{column.dtype} of shape {list(column.shape[1:])}"


def _save(path: Path, array: Array) -> None:
    np.save(path, array, allow_pickle=False)
    sync(path)
