"""The columns of a table over all its rows: clients and splits as codes, labels, and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from fedopt.data.readers.base import SourceFile, TableColumns, data_error
from fedopt.data.readers.table_rows import ACCEPT_MISSING, ROUNDED, Numbers, TableRows, read_rows
from fedopt.errors import DataError
from fedopt.files import disk_errors

LARGEST_FEATURE = float(np.finfo(np.float32).max)
LARGEST_LABEL = 2.0**53 - 1  # larger integers are not exact in double precision
MAX_ONE_HOT = 1000  # columns of one feature
MAX_CODES = 1 << 24  # larger integers are not exact in single precision
_CHUNK = 1 << 16  # rows


class TextCodes:
    """A text column as integers, numbered by first occurrence."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.spellings: dict[str, str] = {}  # as in the table, with spaces
        self.parts: list[Numbers] = []

    def encode(self, values: pa.Array) -> NDArray[np.int64]:
        encoded = values.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = np.array([self.known.setdefault(name, len(self.known)) for name in names], dtype=np.int64)
        return np.asarray(codes[encoded.indices.to_numpy()])

    def add(self, values: pa.Array) -> None:
        self.parts.append(self.encode(values))

    def all(self) -> Numbers:
        return np.concatenate(self.parts)

    def sorted_positions(self) -> NDArray[np.int64]:
        """Return the position of each code's text in sorted order."""
        positions = {name: number for number, name in enumerate(sorted(self.known))}
        return np.array([positions[name] for name in self.known], dtype=np.int64)


class LabelColumn:
    """The label column. The first label determines whether labels are numbers or text."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.is_text: bool | None = None
        self.are_integers = True
        self.codes = TextCodes()
        self.numbers: list[Numbers] = []
        self.rounding: DataError | None = None  # of the first integer that single precision would change

    def add(self, rows: TableRows) -> None:
        if self.is_text is None:
            self.is_text = rows.is_text(self.column)
        if self.is_text:
            rows.check_spelling(self.column, self.codes.spellings)
            self.codes.add(rows.text_labels(self.column))
        else:
            numbers = rows.numbers(self.column, LARGEST_LABEL)
            rounded = rows.rounded(self.column, numbers)
            if rounded.any() and self.rounding is None:
                self.rounding = rows.error(int(rounded.argmax()), self.column, ROUNDED)
            self.are_integers &= bool((numbers == np.rint(numbers)).all())
            self.numbers.append(numbers)

    def text_to_integer(self) -> dict[str, int]:
        """Return the integer of each text label: its position in sorted order."""
        return {name: number for number, name in enumerate(sorted(self.codes.known))}

    def all(self) -> Numbers:
        """Return the labels of all rows, as int64 or float32."""
        if self.is_text:
            return self.codes.sorted_positions()[self.codes.all()]
        if self.rounding is not None and not self.are_integers:
            raise self.rounding
        return np.concatenate(self.numbers).astype(np.int64 if self.are_integers else np.float32)


class FeatureColumns:
    """The features of all rows. A file holds a number per cell: NaN if missing, the code of a category."""

    def __init__(
        self, path: Path, names: Sequence[str], categories: Sequence[str], columns: TableColumns
    ) -> None:
        self.path, self.names = path, names
        self.missing = columns.missing
        self.one_hot = columns.categories != "codes"
        self.codes = {name: TextCodes() for name in names if name in categories}
        self.incomplete = np.zeros(len(names), dtype=bool)  # columns with missing numbers
        self.fills: dict[str, float] = {}  # their replacements
        self.dropped = 0
        self._counters = np.ones((2, len(names)), dtype=bool)  # columns that count the rows from 0 and from 1

    def drop_missing(self, rows: TableRows, label: str) -> TableRows:
        """Return the rows without missing features or labels, if the option `missing` is "drop"."""
        if self.missing != "drop":
            return rows
        missing = rows.is_missing(label, texts=("",))
        for name in self.names:
            missing |= rows.is_missing(name)
        self.dropped += int(missing.sum())
        return rows.without(missing)

    def add(self, rows: TableRows) -> None:
        """Append rows to the file."""
        cells = np.stack([self._numbers(rows, name) for name in self.names], axis=1)
        self.incomplete |= np.isnan(cells).any(axis=0)
        for first in (0, 1):
            self._counters[first] &= (cells == rows.numbers_from(first)[:, None]).all(axis=0)
        with disk_errors(self.path), open(self.path, "ab") as output:
            output.write(cells.astype("<f4").tobytes())

    def _numbers(self, rows: TableRows, name: str) -> Numbers:
        rows.file.reserve(0)  # checks the time
        if name not in self.codes:
            return rows.features(name, LARGEST_FEATURE, may_be_missing=self.missing != "reject")
        rows.check_spelling(name, self.codes[name].spellings)
        values = rows.categories(name)
        if self.missing == "reject":
            rows.check(compute.not_equal(values, ""), name, f"is missing; {ACCEPT_MISSING}")
        return self.codes[name].encode(values)

    def finish(self, file: SourceFile, train: Numbers) -> None:
        """Check the number of categories, and compute the replacements of missing numbers.

        Means are those of the `train` rows.
        """
        limit = MAX_ONE_HOT if self.one_hot else MAX_CODES
        for name, codes in self.codes.items():
            if len(codes.known) > limit:
                remedy = (
                    "use --categories codes, or select other --features" if self.one_hot else "leave it out"
                )
                problem = f"column {name!r} has {len(codes.known):,} different texts; allowed: {limit:,}"
                raise data_error(file, f"{problem}; {remedy}", column=name)
        incomplete = np.flatnonzero(self.incomplete).tolist()
        if self.missing == "zero":
            self.fills = {self.names[index]: 0.0 for index in incomplete}
        elif self.missing == "mean":
            totals, counts = np.zeros(len(self.names)), np.zeros(len(self.names), dtype=np.int64)
            for chunk in self._chunks(train):
                present = ~np.isnan(chunk)
                totals += np.where(present, chunk, 0).sum(axis=0, dtype=np.float64)
                counts += present.sum(axis=0)
            for index in incomplete:
                if counts[index] == 0:
                    problem = "has no value in the training rows, so it has no mean"
                    raise data_error(
                        file, f"column {self.names[index]!r} {problem}", column=self.names[index]
                    )
                self.fills[self.names[index]] = float(totals[index] / counts[index])

    def _chunks(self, rows: Numbers) -> Iterator[Numbers]:
        cells = self._cells()
        for start in range(0, len(rows), _CHUNK):
            yield cells[rows[start : start + _CHUNK]]

    def _cells(self) -> Numbers:
        return np.memmap(self.path, dtype="<f4", mode="r").reshape(-1, len(self.names))

    def read(self, rows: Numbers) -> Numbers:
        """Return the features of some rows, (rows, encoded features)."""
        cells = self._cells()[rows]
        if not self.codes and not self.fills:
            return cells
        parts = [self._encode(name, cells[:, index]) for index, name in enumerate(self.names)]
        return np.concatenate(parts, axis=1)

    def _encode(self, name: str, cells: Numbers) -> Numbers:
        if name not in self.codes:
            return np.where(np.isnan(cells), np.float32(self.fills.get(name, np.nan)), cells)[:, None]
        positions = self.codes[name].sorted_positions()[cells.astype(np.int64)]
        if not self.one_hot:
            return positions[:, None].astype(np.float32)
        return np.eye(len(self.codes[name].known), dtype=np.float32)[positions]

    def notes(self) -> dict[str, Any]:
        """Return the encoded names and the encoding, for the manifest."""
        names: list[str] = []
        for name in self.names:
            is_expanded = name in self.codes and self.one_hot
            names += [f"{name}={text}" for text in sorted(self.codes[name].known)] if is_expanded else [name]
        notes: dict[str, Any] = {"features": names}
        if self._counters.any():
            notes["row_numbers"] = [
                self.names[i] for i in np.flatnonzero(self._counters.any(axis=0)).tolist()
            ]
        if self.codes:
            notes["categories"] = {name: sorted(codes.known) for name, codes in self.codes.items()}
        if self.missing == "drop":
            notes["missing"] = f"{self.dropped} rows with missing values left out"
        elif self.fills:
            notes["missing"] = {"replaced by": self.fills}
        return notes


def find_categories(files: Sequence[SourceFile], columns: TableColumns, features: Sequence[str]) -> list[str]:
    """Return the features that are categories: declared ones and, with the option `categories`, text."""
    unknown_types = [name for name in columns.types if name not in features]
    if unknown_types:
        name = unknown_types[0]
        raise DataError(f"--types names {name!r}, which is not a feature; features: {', '.join(features)}")
    categories = {name for name, kind in columns.types.items() if kind == "category"}
    if columns.categories != "reject":
        undeclared = [name for name in features if name not in columns.types]
        for file in files:
            for rows in read_rows(file, columns, undeclared):
                categories |= {name for name in undeclared if rows.has_categories(name)}
                undeclared = [name for name in undeclared if name not in categories]
    return [name for name in features if name in categories]
