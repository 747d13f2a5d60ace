"""A user's table in CSV or Parquet: a row per example, a client column, a label column and features.

Arrow reads both formats as batches of typed columns, so one code path checks and converts them. Rows may be
in any order. Features are written to a temporary file while reading and grouped by client afterwards, so
memory holds the client, the split and the label of each row, but not its features.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, csv, parquet

from fedopt import rng
from fedopt.data.readers.base import (
    FileSet,
    RawClient,
    SourceFile,
    SplitSource,
    TableColumns,
    data_error,
    split_from_name,
    unreadable,
)
from fedopt.errors import DataError, UnknownName, unknown
from fedopt.files import disk_errors

ROWS_PER_BATCH = 8192  # of Parquet files
BYTES_PER_BLOCK = 4 << 20  # of CSV files; a row must fit into a block
DELIMITERS = ",;\t"
SPLITS = ("train", "test", "heldout")
LARGEST_FEATURE = float(np.finfo(np.float32).max)
LARGEST_LABEL = 2.0**53  # larger integers are not exact in double precision
Numbers = NDArray[Any]


def find_file_sets(files: Sequence[SourceFile], columns: TableColumns, scratch: Path) -> list[FileSet]:
    """Return all tables among `files` as one set. `scratch` is a directory for temporary files."""
    tables = [file for file in files if file.format == "parquet" or _is_csv(file, only=len(files) == 1)]
    if not tables:
        return []
    features = columns.features or _other_columns(tables[0], columns)
    with disk_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    table = _Table(scratch / "features.f32", columns, features)
    for file in tables:
        table.read(file)
    splits = table.splits(tables)
    label = "text" if table.labels.is_text else "integer" if table.labels.are_integers else "float32"
    notes: dict[str, Any] = {
        "features": list(features),
        "label": f"{columns.label} ({label})",
        "client": columns.client,
    }
    if table.labels.is_text:
        notes["labels"] = table.labels.text_to_integer()
    if table.is_split_at_random:
        notes["test"] = f"{columns.test_share:g} of each client's rows, drawn with seed {columns.seed}"
    return [FileSet("table", tables[0].display, splits, tuple(tables), notes)]


class _Table:
    """The rows of all files: features on disk; clients, splits and labels in memory."""

    def __init__(self, path: Path, columns: TableColumns, features: Sequence[str]) -> None:
        self.path, self.columns, self.features = path, columns, features
        self.client_codes, self.split_codes = _Codes(), _Codes()
        self.labels = _Labels(columns.label)
        self.is_split_at_random = False

    def read(self, file: SourceFile) -> None:
        """Append the rows of a file."""
        named_split = split_from_name(file.path) or ""
        for rows in _read_rows(file, self.columns, self.features):
            rows.check_text(rows.clients, self.columns.client)
            splits = pa.array([named_split] * len(rows.clients), pa.string())
            if self.columns.split is not None:
                splits = rows.text(self.columns.split)
                valid = compute.is_in(splits, pa.array(SPLITS))
                rows.check(valid, self.columns.split, f"is not a split; allowed: {', '.join(SPLITS)}")
            self.client_codes.add(rows.clients)
            self.split_codes.add(splits)
            self.labels.add(rows)
            features = np.stack([rows.numbers(name, LARGEST_FEATURE) for name in self.features], axis=1)
            with disk_errors(self.path), open(self.path, "ab") as output:
                output.write(features.astype("<f4").tobytes())

    def splits(self, files: Sequence[SourceFile]) -> dict[str, SplitSource]:
        """Return the clients of each split. Without named splits, draw a share of each client's rows."""
        if not self.client_codes.parts:
            raise data_error(files[0], "holds no rows")
        clients, splits = self.client_codes.all(), self.split_codes.all()
        names = self.split_codes.known
        if set(names) == {""}:
            self.is_split_at_random = True
            test = self._draw_test_rows(files[0], clients)
            chosen = {"train": np.flatnonzero(~test), "test": np.flatnonzero(test)}
        elif "" in names:
            folder = files[0].path.parent
            raise DataError(
                f"some files of {folder} have train or test in their name and others do not; "
                "rename them, or give --split-column",
                path=folder,
            )
        else:
            chosen = {name: np.flatnonzero(splits == code) for name, code in names.items()}
        labels = self.labels.all()
        return {
            name: SplitSource(
                partial(self._clients, files[0], clients, labels, rows), len(np.unique(clients[rows]))
            )
            for name, rows in chosen.items()
        }

    def _draw_test_rows(self, file: SourceFile, clients: Numbers) -> Numbers:
        test = np.zeros(len(clients), dtype=bool)
        order, starts = _group_by_client(clients, np.arange(len(clients)))
        for client, code in self.client_codes.known.items():
            rows = order[starts[code] : starts[code + 1]]
            count = min(max(1, round(self.columns.test_share * len(rows))), len(rows) - 1)
            test[rng.generator(self.columns.seed, "holdout", client).permutation(rows)[:count]] = True
        if not test.any():
            raise data_error(file, "every client has a single row, so the test split would be empty")
        return test

    def _clients(
        self, file: SourceFile, clients: Numbers, labels: Numbers, rows: Numbers
    ) -> Iterator[RawClient]:
        features = np.memmap(self.path, dtype="<f4", mode="r").reshape(-1, len(self.features))
        order, starts = _group_by_client(clients, rows)
        for client, code in sorted(self.client_codes.known.items()):
            own = order[starts[code] : starts[code + 1]]
            if len(own):  # otherwise the client has rows in another split only
                yield RawClient(file, client, {"features": features[own], "label": labels[own]})


class _Codes:
    """A text column as integers, numbered by first occurrence."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.parts: list[Numbers] = []

    def add(self, values: pa.Array) -> None:
        encoded = values.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = np.array([self.known.setdefault(name, len(self.known)) for name in names], dtype=np.int64)
        self.parts.append(codes[encoded.indices.to_numpy()])

    def all(self) -> Numbers:
        return np.concatenate(self.parts)


class _Labels:
    """The label column. The first label determines whether labels are numbers or text."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.is_text: bool | None = None
        self.are_integers = True
        self.codes = _Codes()
        self.numbers: list[Numbers] = []

    def add(self, rows: _Rows) -> None:
        if self.is_text is None:
            self.is_text = rows.is_text(self.column)
        if self.is_text:
            self.codes.add(rows.text_labels(self.column))
        else:
            numbers = rows.numbers(self.column, LARGEST_LABEL)
            self.are_integers &= bool((numbers == np.rint(numbers)).all())
            self.numbers.append(numbers)

    def text_to_integer(self) -> dict[str, int]:
        """Return the integer of each text label: its position in sorted order."""
        return {name: number for number, name in enumerate(sorted(self.codes.known))}

    def all(self) -> Numbers:
        """Return the labels of all rows, as int64 or float32."""
        if self.is_text:
            integers = self.text_to_integer()
            return np.array([integers[name] for name in self.codes.known], dtype=np.int64)[self.codes.all()]
        return np.concatenate(self.numbers).astype(np.int64 if self.are_integers else np.float32)


class _Rows(NamedTuple):
    """Consecutive rows of a file, with conversions that report the first invalid cell."""

    file: SourceFile
    cells: pa.RecordBatch
    first: int  # number of the first row; a CSV header is row 1
    clients: pa.Array

    def error(self, row: int, column: str, problem: str) -> DataError:
        value, line = self.cells.column(column)[row].as_py(), self.first + row
        shown = "" if value in (None, "") else f" {str(value)[:40]!r}"
        why = f"row {line}: column {column!r}{shown} {problem}"
        client = self.clients[row].as_py() or None
        return data_error(self.file, why, client=client, line=line, column=column)

    def check(self, valid: pa.Array | Numbers, column: str, problem: str) -> None:
        """Raise an error for the first row that is not valid."""
        for row in np.flatnonzero(~np.asarray(valid)).tolist():
            raise self.error(row, column, problem)

    def text(self, column: str) -> pa.Array:
        """Return a column as text without missing values."""
        values = compute.utf8_trim_whitespace(_as_text(self.cells.column(column)))
        self.check_text(values, column)
        return values

    def check_text(self, values: pa.Array, column: str) -> None:
        self.check(compute.not_equal(values, ""), column, "is missing")
        one_line = compute.invert(compute.match_substring(values, "\n"))
        self.check(one_line, column, "has a line break; a quotation mark may not be closed")

    def is_text(self, column: str) -> bool:
        """Whether the first value is text. In a CSV file, a number is not."""
        first = self.cells.column(column)[:1]
        return _has_text(first) and (self.file.format == "parquet" or not _is_number(first[0].as_py()))

    def text_labels(self, column: str) -> pa.Array:
        values = self.text(column)
        if self.file.format != "parquet":
            names = [name for name in values.unique().to_pylist() if not _is_number(name)]
            valid = compute.is_in(values, pa.array(names, pa.string()))
            self.check(valid, column, "is a number, but the first label is text")
        return values

    def numbers(self, column: str, largest: float) -> NDArray[np.float64]:
        """Return a column of finite numbers up to `largest` in double precision."""
        values = self.cells.column(column)
        if _has_text(values):
            values = compute.utf8_trim_whitespace(_as_text(values))
            values = compute.if_else(compute.equal(values, ""), None, values)
        try:
            numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            valid = np.array([cell is None or _is_number(cell) for cell in values.to_pylist()])
            self.check(valid, column, "is not a number")
            raise
        except pa.ArrowNotImplementedError:
            why = f"column {column!r} has type {values.type}; expected numbers"
            raise data_error(self.file, why, column=column) from None
        self.check(np.isfinite(numbers), column, "is missing or not finite")
        self.check(np.abs(numbers) <= largest, column, f"is too large; allowed: up to {largest:.4g}")
        return np.asarray(numbers)


def _read_rows(file: SourceFile, columns: TableColumns, features: Sequence[str]) -> Iterator[_Rows]:
    wanted = [columns.client, *([columns.split] if columns.split else []), *features, columns.label]
    names, delimiter = _column_names(file, columns.client)
    if len(set(names)) != len(names):
        raise data_error(file, "has two columns of the same name")
    for name in wanted:
        if name not in names:
            error = unknown("column", name, names)
            raise UnknownName(f"{file.display}: {error}", kind="column", name=name, allowed=names)
    first = 1 if file.format == "parquet" else 2
    # The last CSV column is read in any case, to find a quotation mark that is not closed.
    for batch in _read_batches(file, list(dict.fromkeys([*wanted, names[-1]])), delimiter):
        if batch.num_rows:
            yield _Rows(file, batch, first, _as_text(batch.column(columns.client)))
            first += batch.num_rows
            last_cell = batch.column(names[-1])[-1].as_py()
    if file.format != "parquet" and first > 2 and "\n" in last_cell and not _ends_with_quote(file):
        raise data_error(file, f"row {first - 1}: a quotation mark is not closed", line=first - 1)


def _read_batches(file: SourceFile, columns: list[str], delimiter: str) -> Iterator[pa.RecordBatch]:
    try:
        if file.format == "parquet":
            yield from parquet.ParquetFile(file.path).iter_batches(ROWS_PER_BATCH, columns=columns)
        else:  # as text, because Arrow would infer types from the first block alone
            types = {name: pa.string() for name in columns}
            options = csv.ConvertOptions(include_columns=columns, column_types=types)
            yield from _open_csv(file, delimiter, "error", options)
    except (pa.ArrowException, OSError) as error:
        match = re.search(r"Row #(\d+)", str(error))
        raise unreadable(file, error, line=int(match[1]) if match else None) from None


def _open_csv(
    file: SourceFile, delimiter: str, on_invalid_row: str, types: csv.ConvertOptions | None = None
) -> csv.CSVStreamingReader:
    return csv.open_csv(
        file.path,
        # one thread: row numbers in errors are known only then
        read_options=csv.ReadOptions(block_size=BYTES_PER_BLOCK, use_threads=False),
        parse_options=csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: on_invalid_row
        ),
        convert_options=types,
    )


def _ends_with_quote(file: SourceFile) -> bool:
    with open(file.path, "rb") as stream:
        stream.seek(max(0, file.path.stat().st_size - 4))
        return stream.read().rstrip(b"\r\n").endswith(b'"')


def _column_names(file: SourceFile, client_column: str) -> tuple[list[str], str]:
    """Return the column names and the CSV delimiter, which is the one that separates the client column."""
    try:
        if file.format == "parquet":
            return parquet.ParquetFile(file.path).schema_arrow.names, ""
        choices = [(_open_csv(file, delimiter, "skip").schema.names, delimiter) for delimiter in DELIMITERS]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None
    return next((choice for choice in choices if client_column in choice[0]), choices[0])


def _other_columns(file: SourceFile, columns: TableColumns) -> tuple[str, ...]:
    names = _column_names(file, columns.client)[0]
    features = tuple(name for name in names if name not in (columns.client, columns.label, columns.split))
    if not features:
        raise data_error(file, f"has only the columns {', '.join(names)}, so there are no features")
    return features


def _is_csv(file: SourceFile, only: bool) -> bool:
    return file.format == "text" and (only or file.path.suffix.lower() in (".csv", ".tsv"))


def _has_text(values: pa.Array) -> bool:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _as_text(values: pa.Array) -> pa.Array:
    """Convert to text. A missing value becomes empty text."""
    if _has_text(values):
        return values.cast(pa.string()).fill_null("")
    return pa.array(["" if value is None else str(value) for value in values.to_pylist()], pa.string())


def _is_number(text: str) -> bool:
    try:
        pa.scalar(text.strip()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _group_by_client(clients: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return `rows` sorted by client and then by row, and the position at which each client starts."""
    order = rows[np.argsort(clients[rows], kind="stable")]
    return order, np.searchsorted(clients[order], np.arange(clients.max() + 2))
