"""Read the rows of a CSV or Parquet file in batches, with conversions that report the first invalid cell.

Arrow reads both formats as batches of typed columns, so one code path checks and converts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from fedopt.data.readers.base import SourceFile, TableColumns, data_error
from fedopt.data.readers.table_files import column_names, ends_with_quote, has_text, read_batches
from fedopt.errors import DataError, UnknownName, unknown

# Texts of a feature in a CSV file that mean a missing value, in lower case. Excel, pandas and R write them.
NO_TEXT = ("", "nan", "NaN")  # NumPy and pandas write the last two for a missing id or label
MISSING = ("", "#n/a", "<na>", "n/a", "na", "nan", "none", "null")
ACCEPT_MISSING = "--missing drop, mean or zero accepts missing values"
ROUNDED = "would be rounded: integers are exact up to 16,777,216 in single precision; scale the column"
Numbers = NDArray[Any]


class TableRows(NamedTuple):
    """Rows of a file."""

    file: SourceFile
    cells: pa.RecordBatch
    lines: NDArray[np.int64]  # number of each row; a CSV header is row 1
    clients: pa.Array

    def without(self, dropped: NDArray[np.bool_]) -> TableRows:
        keep = pa.array(~dropped)
        return TableRows(self.file, self.cells.filter(keep), self.lines[~dropped], self.clients.filter(keep))

    def numbers_from(self, first: int) -> NDArray[np.int64]:
        """Return the numbers of the rows within the file, from `first`."""
        return self.lines - (1 if self.file.format == "parquet" else 2) + first

    def error(self, row: int, column: str, problem: str) -> DataError:
        value, line = self.cells.column(column)[row].as_py(), int(self.lines[row])
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
        self.check(compute.invert(compute.is_in(values, pa.array(NO_TEXT))), column, "is missing")
        self._check_line_breaks(values, column)

    def check_spelling(self, column: str, known: dict[str, str]) -> None:
        """Reject texts that differ from those in `known` in surrounding white space only. Add the others."""
        texts = _as_text(self.cells.column(column))
        distinct = texts.unique()
        trimmed = compute.utf8_trim_whitespace(distinct).to_pylist()
        for name, text in zip(trimmed, distinct.to_pylist(), strict=True):
            if known.setdefault(name, text) != text:
                problem = f"differs from {known[name]!r} in spaces only; write both in the same way"
                self.check(compute.not_equal(texts, text), column, problem)

    def rounded(self, column: str, numbers: Numbers) -> Numbers:
        """Return which numbers are written as integers that single precision would change."""
        values = self.cells.column(column)
        changed = (numbers.astype(np.float32) != numbers) & (numbers == np.rint(numbers))
        changed |= np.abs(numbers) >= 2.0**53  # not exact in double precision
        if has_text(values) and changed.any():
            changed &= np.asarray(compute.match_substring_regex(_as_text(values), r"^\s*[+-]?\d+\s*$"))
        return np.zeros_like(changed) if pa.types.is_floating(values.type) else changed

    def _check_line_breaks(self, values: pa.Array, column: str) -> None:
        one_line = compute.invert(compute.match_substring(values, "\n"))
        self.check(one_line, column, "has a line break; a quotation mark may not be closed")

    def is_text(self, column: str) -> bool:
        """Whether the first value is text. In a CSV file, a number is not."""
        first = self.cells.column(column)[:1]
        return has_text(first) and (self.file.format == "parquet" or not _is_number(first[0].as_py()))

    def text_labels(self, column: str) -> pa.Array:
        values = self.text(column)
        if self.file.format != "parquet":
            names = [name for name in values.unique().to_pylist() if not _is_number(name)]
            valid = compute.is_in(values, pa.array(names, pa.string()))
            self.check(valid, column, "is a number, but the first label is text")
        return values

    def is_missing(self, column: str, texts: Sequence[str] = MISSING) -> NDArray[np.bool_]:
        """Return for each row whether the cell is null, not a number, or one of `texts` in lower case."""
        values = self.cells.column(column)
        if has_text(values):
            if self.file.format == "parquet":
                texts = ("",)  # a Parquet file marks missing values itself
            missing = compute.is_in(_normalized(values), pa.array(texts, pa.string()))
        else:
            missing = compute.is_null(values, nan_is_null=True)
        return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=bool)

    def has_categories(self, column: str) -> bool:
        """Whether some cells are text. In a CSV file, numbers, truth values and missing values are not."""
        values = self.cells.column(column)
        if not has_text(values) or self.file.format == "parquet":
            return has_text(values)
        return not all(
            text in (*MISSING, "true", "false") or _is_number(text)
            for text in _normalized(values).unique().to_pylist()
        )

    def categories(self, column: str) -> pa.Array:
        """Return a column as text. Missing values are empty."""
        values = compute.utf8_trim_whitespace(_as_text(self.cells.column(column)))
        if self.file.format != "parquet":
            self._check_line_breaks(values, column)
        return compute.if_else(pa.array(self.is_missing(column)), "", values)

    def features(self, column: str, largest: float, *, may_be_missing: bool) -> NDArray[np.float64]:
        """Return a column of numbers up to `largest`. Truth values are 1 and 0, missing values NaN."""
        values = self.cells.column(column)
        if has_text(values):
            values = compute.if_else(pa.array(self.is_missing(column)), None, _normalized(values))
            for text, number in (("true", "1"), ("false", "0")):
                values = compute.replace_with_mask(
                    values, compute.equal(values, text).fill_null(False), number
                )
        numbers = self._floats(values, column, "is not a number; --categories one-hot or codes accepts text")
        valid = np.isfinite(numbers)
        if may_be_missing:
            self.check(valid | np.isnan(numbers), column, "is not finite")
        self.check(valid | may_be_missing, column, f"is missing or not finite; {ACCEPT_MISSING}")
        self._check_size(numbers, column, largest)
        self.check(~self.rounded(column, numbers), column, f"{ROUNDED}, or declare it with --types")
        return numbers

    def numbers(self, column: str, largest: float) -> NDArray[np.float64]:
        """Return a column of finite numbers up to `largest` in double precision."""
        values = self.cells.column(column)
        if has_text(values):
            values = compute.utf8_trim_whitespace(_as_text(values))
            values = compute.if_else(compute.equal(values, ""), None, values)
        numbers = self._floats(values, column, "is not a number")
        self.check(np.isfinite(numbers), column, "is missing or not finite")
        self._check_size(numbers, column, largest)
        return numbers

    def _floats(self, values: pa.Array, column: str, problem: str) -> NDArray[np.float64]:
        """Convert to double precision. Missing values are NaN."""
        try:
            return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            valid = np.array([cell is None or _is_number(cell) for cell in values.to_pylist()])
            self.check(valid, column, problem)
            raise
        except pa.ArrowNotImplementedError:
            why = f"column {column!r} has type {values.type}; expected numbers"
            raise data_error(self.file, why, column=column) from None

    def _check_size(self, numbers: NDArray[np.float64], column: str, largest: float) -> None:
        too_large = np.abs(numbers) > largest  # False for missing values
        self.check(~too_large, column, f"is too large; allowed: up to {largest:.4g}")


def read_rows(file: SourceFile, columns: TableColumns, features: Sequence[str]) -> Iterator[TableRows]:
    wanted = [columns.client, *([columns.split] if columns.split else []), *features, columns.label]
    names, delimiter = column_names(file, columns.client)
    known = set(names)
    if len(known) != len(names):
        raise data_error(file, "has two columns of the same name")
    for name in wanted:
        if name not in known:
            error = unknown("column", name, names)
            raise UnknownName(f"{file.display}: {error}", kind="column", name=name, allowed=names)
    first = 1 if file.format == "parquet" else 2
    # The last CSV column is read in any case, to find a quotation mark that is not closed.
    for batch in read_batches(file, list(dict.fromkeys([*wanted, names[-1]])), delimiter):
        if batch.num_rows:
            lines = np.arange(first, first + batch.num_rows)
            clients = compute.utf8_trim_whitespace(_as_text(batch.column(columns.client)))
            yield TableRows(file, batch, lines, clients)
            first += batch.num_rows
            last_cell = batch.column(names[-1])[-1].as_py()
    if file.format != "parquet" and first > 2 and "\n" in last_cell and not ends_with_quote(file):
        raise data_error(file, f"row {first - 1}: a quotation mark is not closed", line=first - 1)


def _as_text(values: pa.Array) -> pa.Array:
    """Convert to text. A missing value becomes empty text."""
    if has_text(values):
        return values.cast(pa.string()).fill_null("")
    return pa.array([_cell_text(value) for value in values.to_pylist()], pa.string())


def _cell_text(value: object) -> str:
    """Return a cell as text. Some programs store texts in Parquet files as bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return "" if value is None or value != value else str(value)  # NaN differs from itself


def _is_number(text: str) -> bool:
    try:
        pa.scalar(text.strip()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _normalized(values: pa.Array) -> pa.Array:
    """Return text in lower case without surrounding white space. Missing values are empty."""
    return compute.utf8_lower(compute.utf8_trim_whitespace(_as_text(values)))
