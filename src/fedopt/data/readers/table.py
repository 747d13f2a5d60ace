"""A user's table in CSV or Parquet: a row per example, a client column, a label column and numeric features.

Arrow reads batches of rows and converts their cells. Features go to a temporary file and are grouped by
client afterwards, so memory holds the client, the split and the label of each row, but not its features.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet
from pyarrow import csv as arrow_csv

from fedopt import rng
from fedopt.data.readers import base
from fedopt.data.readers.base import FileSet, RawClient, SourceFile, SplitSource, TableColumns, data_error
from fedopt.data.readers.limits import MAX_COLUMNS, MAX_TEXT
from fedopt.errors import unknown
from fedopt.files import disk_errors

SPLITS = ("train", "test", "heldout")
SUFFIXES = (".csv", ".tsv", ".parquet")
BLOCK = 4 << 20  # bytes of CSV files; a row must fit into a block
LARGEST = float(np.finfo(np.float32).max)
# Names that pandas gives to an index without a name, in a file that it wrote or read and wrote again.
INDEX = re.compile(r"|Unnamed: \d+(\.\d+)*|__index_level_\d+__")
NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
KINDS = ("string", "large_string", "string_view", "binary", "dictionary")
TEXTS = [getattr(pa.types, f"is_{kind}") for kind in KINDS]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf", re.ASCII | re.IGNORECASE)
Numbers = NDArray[Any]


def find_file_sets(files: Sequence[SourceFile], columns: TableColumns, scratch: Path) -> list[FileSet]:
    """Return all tables among `files` as one set. `scratch` is a directory for temporary files."""
    formats = ("parquet", "text") if len(files) == 1 else ("parquet",)
    tables = [f for f in files if f.format in formats or f.format == "text" and f.path.suffix in SUFFIXES]
    if not tables:
        return []
    for file in tables:
        if file.format != tables[0].format or file.path.suffix != tables[0].path.suffix:
            raise data_error(file, f"and {tables[0].display} have different formats; name the one to import")
    with disk_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    splits, notes = _Table(scratch / "features.f32", tables, columns).splits()
    return [FileSet("table", tables[0].display, splits, tuple(tables), notes)]


class _Table:
    """The rows of all files: features on disk; clients, splits and labels in memory."""

    def __init__(self, path: Path, files: Sequence[SourceFile], columns: TableColumns) -> None:
        self.path, self.file, self.columns = path, files[0], columns
        names = _column_names(files[0])[0]
        used = (columns.client, columns.label, columns.split)
        others = [name for name in names if name not in used and not INDEX.fullmatch(name)]
        self.features = columns.features or others
        if not self.features:
            raise data_error(files[0], f"has only the columns {', '.join(names)}, so there are no features")
        self.texts: dict[str, list[pa.Array]] = {name or "": [] for name in used}
        integers, rounded = np.array([[True], [False]]).repeat(len(self.features), axis=1)
        for texts, numbers in (rows for file in files for rows in _read(file, self.texts, self.features)):
            for name, values in texts.items():
                self.texts[name].append(values)
            single = numbers.astype(np.float32)
            integers &= (numbers == np.rint(numbers)).all(axis=0)
            rounded |= ((single != numbers) | (np.abs(numbers) >= 2.0**53)).any(axis=0)
            with disk_errors(path), open(path, "ab") as output:
                output.write(single.tobytes())
        for at in np.flatnonzero(integers & rounded).tolist():
            why = "has integers that single precision would round; up to 16,777,216 are exact: scale it"
            raise data_error(files[0], f"column {self.features[at]!r} {why}", column=self.features[at])
        if not self.texts[columns.client]:
            raise data_error(files[0], "holds no rows")
        self.clients, self.ids = self._codes(columns.client)
        self.labels, self.notes = self._labels(*self._codes(columns.label))

    def splits(self) -> tuple[dict[str, SplitSource], dict[str, Any]]:
        """Return the clients of each split, and notes. Without named splits, draw a test split."""
        codes, names = self._codes(self.columns.split or "")
        chosen = {name: codes == code for code, name in enumerate(names)}
        notes = {**self.notes, "features": list(self.features), "client": self.columns.client}
        if names == [""]:
            test = self._draw_test_rows()
            chosen = {"train": ~test, "test": test}
            share, seed = self.columns.test_share, self.columns.seed
            notes["test"] = f"{share:g} of each client's rows, drawn with seed {seed}"
        elif wrong := [name for name in names if name not in SPLITS]:
            why = f"the split of a row is {wrong[0]!r}; allowed: {', '.join(SPLITS)}, in the split column"
            raise data_error(self.file, f"{why} or in the names of all tables", column=self.columns.split)
        return {
            name: SplitSource(partial(self._read, np.flatnonzero(rows)), len(np.unique(self.clients[rows])))
            for name, rows in chosen.items()
        }, notes

    def _codes(self, column: str) -> tuple[Numbers, list[str]]:
        """Return the number of each row's text, and the texts without surrounding spaces by number."""
        joined = pa.chunked_array(self.texts[column]).combine_chunks()
        texts: list[str] = compute.utf8_trim_whitespace(joined.dictionary).to_pylist()
        numbers = {text: number for number, text in enumerate(texts)}
        for number, text in enumerate(texts):
            if numbers[text] != number:
                why = f"column {column!r} has {text!r} with and without spaces; write it in one way"
                raise data_error(self.file, why, client=text, column=column)
        return joined.indices.to_numpy(), texts

    def _labels(self, codes: Numbers, texts: list[str]) -> tuple[Numbers, dict[str, Any]]:
        """Return the labels as int64 or float32, and notes. A text becomes its position in sorted order."""
        column = self.columns.label
        numbers = np.array([float(text) if NUMBER.fullmatch(text) else np.nan for text in texts])
        if np.isnan(numbers).all():
            positions = {text: number for number, text in enumerate(sorted(texts))}
            labels = np.array([positions[text] for text in texts], dtype=np.int64)
            return labels[codes], {"label": f"{column} (text)", "labels": positions}
        is_integer = bool((numbers == np.rint(numbers)).all())
        for at in np.flatnonzero(~(np.abs(numbers) <= (2.0**53 - 1 if is_integer else LARGEST))).tolist():
            why = f"column {column!r} has the label {texts[at][:40]!r}; allowed: only texts, only integers"
            raise data_error(self.file, f"{why} below 2^53, or numbers up to {LARGEST:.4g}", column=column)
        kind, name = (np.int64, "integer") if is_integer else (np.float32, "float32")
        return numbers[codes].astype(kind), {"label": f"{column} ({name})"}

    def _draw_test_rows(self) -> NDArray[np.bool_]:
        """Return which rows are test rows: a share of each client's rows, but not its only one."""
        test = np.zeros(len(self.clients), dtype=bool)
        for client, rows in self._group(np.arange(len(test))):
            count = min(max(1, round(self.columns.test_share * len(rows))), len(rows) - 1)
            test[rng.generator(self.columns.seed, "holdout", client).permutation(rows)[:count]] = True
        return test

    def _read(self, rows: Numbers) -> Iterator[RawClient]:
        cells = np.memmap(self.path, dtype=np.float32, mode="r").reshape(-1, len(self.features))
        for client, own in self._group(rows):
            yield RawClient(self.file, client, {"features": cells[own], "label": self.labels[own]})

    def _group(self, rows: Numbers) -> Iterator[tuple[str, Numbers]]:
        """Iterate over the clients that have some of `rows`, in the order of their ids."""
        order = rows[np.argsort(self.clients[rows], kind="stable")]
        starts = np.searchsorted(self.clients[order], np.arange(len(self.ids) + 1))
        for client, code in sorted((client, code) for code, client in enumerate(self.ids)):
            if starts[code] < starts[code + 1]:
                yield client, order[starts[code] : starts[code + 1]]


def _read(
    file: SourceFile, columns: Iterable[str], features: Sequence[str]
) -> Iterator[tuple[dict[str, pa.Array], Numbers]]:
    """Read batches of rows: columns of texts, and the features. The column "" is the split of the file."""
    names, delimiter = _column_names(file)
    texts = [name for name in columns if name]
    last, tail = names[-1] if delimiter else texts[0], ""  # column, and its last cell
    types = dict.fromkeys([last, *texts], pa.string()) | dict.fromkeys(features, pa.float64())
    for name in sorted(types.keys() - set(names)):
        raise unknown(f"column of {file.display}", name, names)
    first = 2 if delimiter else 1  # the number of a row; a CSV header is row 1
    options = (
        arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False),  # otherwise errors have no row numbers
        arrow_csv.ParseOptions(delimiter=delimiter or ",", newlines_in_values=True),
        arrow_csv.ConvertOptions(include_columns=list(types), column_types=types),
    )
    try:
        with open(file.path, "rb") as stream:
            csv_or_parquet = (
                arrow_csv.open_csv(stream, *options) if delimiter else _parquet(file, stream, types)
            )
            for batch in filter(len, csv_or_parquet):
                file.reserve(max(batch.nbytes, 8 * batch.num_rows * batch.num_columns))  # as decoded
                split = pa.repeat(base.split_from_name(file.location) or "", len(batch)).dictionary_encode()
                found = {name: _texts(file, first, batch, name) if name else split for name in columns}
                yield found, _numbers(file, first, batch, features)
                first, tail = first + len(batch), str(batch.column(last)[-1].as_py())
        if "\n" in tail:
            why = f"row {first - 1}: the last cell has a line break; a quotation mark may not be closed"
            raise data_error(file, why, line=first - 1)
    except (pa.ArrowException, OSError) as error:
        row, column = (re.search(rf"{what} #(\d+)", str(error)) for what in ("Row", "column"))
        if row is None or column is None or "UTF8" in str(error):
            raise base.unreadable(file, error, line=int(row[1]) if row else None) from None
        name, problem = names[int(column[1])], str(error).rpartition(": ")[2]
        why = f"row {row[1]}: column {name!r} has an {problem}; expected a number"
        raise data_error(file, why, line=int(row[1]), column=name) from None


def _texts(file: SourceFile, first: int, batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return a column as texts, none of them missing, with a number for each text."""
    values = batch.column(column).cast(pa.string()).fill_null("")
    wrong = compute.match_substring_regex(values, r"^\s*(nan|NaN)?\s*$|\n")
    for row in np.flatnonzero(wrong).tolist():
        problem = "is missing or has a line break; a quotation mark may not be closed"
        raise _cell_error(file, first + row, batch, row, column, problem)
    return values.dictionary_encode()


def _numbers(file: SourceFile, first: int, batch: pa.RecordBatch, columns: Sequence[str]) -> Numbers:
    """Return columns of numbers, (rows, columns)."""
    cells = [batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in columns]
    numbers = np.stack(cells, axis=1)
    for row, at in np.argwhere(~(np.abs(numbers) <= LARGEST)).tolist():  # also NaN
        problem = f"is missing, not finite or too large; allowed: up to {LARGEST:.4g}"
        raise _cell_error(file, first + row, batch, row, columns[at], problem)
    return numbers


def _cell_error(
    file: SourceFile, line: int, batch: pa.RecordBatch, row: int, column: str, problem: str
) -> Exception:
    why = f"row {line}: column {column!r} {str(batch.column(column)[row].as_py())[:40]!r} {problem}"
    return data_error(file, why, line=line, column=column)


def _parquet(file: SourceFile, stream: BinaryIO, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    schema = parquet.read_schema(stream)
    texts = [name for name in types if any(is_kind(schema.field(name).type) for is_kind in TEXTS)]
    for name in types:
        if not any(is_kind(kind := schema.field(name).type) for is_kind in NUMBERS):
            if name not in texts or types[name] == pa.float64():
                raise data_error(
                    file, f"column {name!r} has type {kind}; expected {types[name]}", column=name
                )
    table = parquet.ParquetFile(stream, read_dictionary=texts)
    for index in range(table.metadata.num_row_groups):
        file.reserve(table.metadata.row_group(index).total_byte_size)
    for batch in table.iter_batches(8192, columns=list(types)):
        batch.validate(full=True)  # texts that are not UTF-8
        for name in texts:  # as a dictionary, a text that occurs in many rows is in memory once
            if (
                max((len(str(text)) for text in batch.column(name).dictionary.to_pylist()), default=0)
                > MAX_TEXT
            ):
                raise data_error(file, f"column {name[:40]!r} has a text of more than {MAX_TEXT:,} bytes")
        yield batch


def _column_names(file: SourceFile) -> tuple[list[str], str]:
    """Return the column names and the CSV delimiter, the most frequent one in the first line with text."""
    try:
        with open(file.path, "rb") as stream:  # Arrow cannot open a path that is not UTF-8
            if file.format == "parquet":
                names, delimiter = list(parquet.read_schema(stream).names), ""
            else:
                header = next(filter(bytes.strip, stream), b"").decode("utf-8-sig")
                delimiter = max(",;\t", key=header.count)
                names = next(csv.reader([header], delimiter=delimiter), [])
    except UnicodeDecodeError:
        raise data_error(file, "is not UTF-8 text; save it as UTF-8") from None
    except (pa.ArrowException, OSError, csv.Error) as error:
        raise base.unreadable(file, error) from None
    if len(names) > MAX_COLUMNS or len(set(names)) < len(names):
        why = f"has {len(names):,} columns; allowed: {MAX_COLUMNS:,} with different names"
        raise data_error(file, why)
    return names, delimiter
