"""A user's own table, CSV or Parquet: a row per example, one column with the client, one with the label.

Rows may come in any order. They are written to a spool on disk as they are read and gathered by client from
there, so that memory holds some bytes per row and not the rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt import rng
from fedopt.data.readers.base import Candidate, File, RawClient, SplitSource, bad, damaged, split_of
from fedopt.errors import UserError, unknown
from fedopt.files import disk_errors

BATCH = 8192
DELIMITERS = ",;\t"
Array = NDArray[Any]


@dataclass(frozen=True)
class Roles:
    """Which column is what; the features are all others unless they are named."""

    client: str
    label: str
    features: tuple[str, ...] = ()
    split: str | None = None
    test_share: float = 0.2  # of each client's rows, where neither file names nor a column say the split
    seed: int = 0


class Batch(NamedTuple):
    """Some rows of a table."""

    clients: list[str]
    splits: list[str]  # empty without a split column
    numbers: Array  # (rows, features + 1) float64, the label last
    first: int  # the number of the first row, for errors


def candidates(files: Sequence[File], roles: Roles, spool: Path) -> list[Candidate]:
    """All tables among `files` as one set."""
    tables = [file for file in files if file.kind == "parquet" or _is_csv(file, alone=len(files) == 1)]
    if not tables:
        return []
    features = roles.features or _features(tables[0], roles)
    with disk_errors(spool):
        spool.mkdir(parents=True, exist_ok=True)
    rows = _Rows(spool / "rows.f64", len(features) + 1)
    for file in tables:
        rows.read(file, roles, features)
    splits = rows.splits(tables, roles)
    label = "integer" if rows.integer_labels else "float32"
    notes = {"features": list(features), "label": f"{roles.label} ({label})", "client": roles.client}
    if rows.cut:
        notes["test"] = f"{roles.test_share:g} of each client's rows, drawn with seed {roles.seed}"
    return [Candidate("table", tables[0].shown, splits, tuple(tables), notes)]


class _Rows:
    """The rows of all files: numbers on disk, client and split codes in memory."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width = path, width
        self.clients: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.client_codes: list[Array] = []
        self.split_codes: list[Array] = []
        self.integer_labels, self.cut = True, False
        self.file = ""

    def read(self, file: File, roles: Roles, features: Sequence[str]) -> None:
        self.file = self.file or file.shown
        named = split_of(file.path) or ""
        for batch in _batches(file, roles, features):
            _check(file, batch, (*features, roles.label))
            labels = batch.numbers[:, -1]
            self.integer_labels &= bool((labels == np.rint(labels)).all())
            self.client_codes.append(_codes(batch.clients, self.clients))
            self.split_codes.append(_codes(batch.splits or [named] * len(batch.clients), self.names))
            with disk_errors(self.path), open(self.path, "ab") as spool:
                spool.write(batch.numbers.astype("<f8").tobytes())

    def splits(self, files: Sequence[File], roles: Roles) -> dict[str, SplitSource]:
        """Clients of each split; where nothing names a split, a share of each client's rows is the test."""
        if not self.client_codes:
            raise bad(files[0].shown, "holds no rows")
        clients, names = np.concatenate(self.client_codes), np.concatenate(self.split_codes)
        if set(self.names) == {""}:
            self.cut = True
            return self._cut(clients, roles)
        if "" in self.names:
            raise UserError(
                f"some files of {files[0].path.parent} have train or test in their name and others do not; "
                "name all, or give --split-column"
            )
        return {
            split: self._source(clients, np.flatnonzero(names == code)) for split, code in self.names.items()
        }

    def _cut(self, clients: Array, roles: Roles) -> dict[str, SplitSource]:
        test = np.zeros(len(clients), dtype=bool)
        order, bounds = _by_client(clients, np.arange(len(clients)))
        for client, code in self.clients.items():
            rows = order[bounds[code] : bounds[code + 1]]
            n = min(max(1, round(roles.test_share * len(rows))), len(rows) - 1)
            test[rng.generator(roles.seed, "holdout", client).permutation(rows)[:n]] = True
        if not test.any():
            raise bad(self.file, "every client has a single row, so none can be held out for the test split")
        return {
            "train": self._source(clients, np.flatnonzero(~test)),
            "test": self._source(clients, np.flatnonzero(test)),
        }

    def _source(self, clients: Array, rows: Array) -> SplitSource:
        return SplitSource(partial(self._clients, clients, rows), len(np.unique(clients[rows])))

    def _clients(self, clients: Array, rows: Array) -> Iterator[RawClient]:
        numbers = np.memmap(self.path, dtype="<f8", mode="r").reshape(-1, self.width)
        order, bounds = _by_client(clients, rows)
        for client in sorted(self.clients):
            code = self.clients[client]
            if code + 1 >= len(bounds) or bounds[code] == bounds[code + 1]:
                continue  # this client has rows in another split only
            own = numbers[order[bounds[code] : bounds[code + 1]]]
            label = own[:, -1].astype(np.int64 if self.integer_labels else np.float32)
            yield RawClient(self.file, client, {"features": own[:, :-1].astype(np.float32), "label": label})


def _by_client(clients: Array, rows: Array) -> tuple[Array, Array]:
    """Rows sorted by client in their own order, and where each client's begin."""
    order = rows[np.argsort(clients[rows], kind="stable")]
    return order, np.searchsorted(clients[order], np.arange(clients.max() + 2))


def _codes(names: Sequence[str], known: dict[str, int]) -> Array:
    return np.fromiter((known.setdefault(name, len(known)) for name in names), np.int64, len(names))


def _check(file: File, batch: Batch, columns: Sequence[str]) -> None:
    wrong = np.argwhere(~np.isfinite(batch.numbers))
    if len(wrong):
        row, column = wrong[0]
        why = f"row {batch.first + row}: column {columns[column]!r} is empty or not finite"
        raise bad(file.shown, why, batch.clients[row])
    for row, client in enumerate(batch.clients):
        if not client:
            raise bad(file.shown, f"row {batch.first + row} has no client")
    for row, split in enumerate(batch.splits):
        if split not in ("train", "test", "heldout"):
            why = f"row {batch.first + row}: split is {split!r}; allowed: train, test, heldout"
            raise bad(file.shown, why, batch.clients[row])


def _features(file: File, roles: Roles) -> tuple[str, ...]:
    columns = _parquet(file).schema_arrow.names if file.kind == "parquet" else _header(file, roles)[0]
    taken = {roles.client, roles.label, roles.split}
    features = tuple(name for name in columns if name not in taken)
    if not features:
        raise bad(file.shown, f"has no columns besides {', '.join(columns)}; nothing is left as a feature")
    return features


def _batches(file: File, roles: Roles, features: Sequence[str]) -> Iterator[Batch]:
    wanted = [roles.client, *([roles.split] if roles.split else []), *features, roles.label]
    read = _parquet_batches if file.kind == "parquet" else _csv_batches
    return read(file, roles, wanted)


def _pick(file: File, columns: Sequence[str], wanted: Sequence[str]) -> list[int]:
    if len(set(columns)) != len(columns):
        raise bad(file.shown, "has two columns of the same name")
    for name in wanted:
        if name not in columns:
            raise UserError(f"{file.shown}: {unknown('column', name, columns)}")
    return [columns.index(name) for name in wanted]


def _is_csv(file: File, alone: bool) -> bool:
    return file.kind == "text" and (alone or file.path.suffix.lower() in (".csv", ".tsv"))


def _header(file: File, roles: Roles) -> tuple[list[str], str]:
    """The column names and the delimiter, which is the one that finds the client column."""
    try:
        with _reading_csv(file) as stream:
            first = stream.readline()
    except UnicodeDecodeError as error:
        raise bad(file.shown, f"is not valid UTF-8 ({error.reason})") from None
    choices = [(next(csv.reader([first], delimiter=d), []), d) for d in DELIMITERS]
    return next((choice for choice in choices if roles.client in choice[0]), choices[0])


def _csv_batches(file: File, roles: Roles, wanted: Sequence[str]) -> Iterator[Batch]:
    columns, delimiter = _header(file, roles)
    picks = _pick(file, columns, wanted)
    start = 2 if roles.split else 1
    row = 1
    try:
        with _reading_csv(file) as stream:
            lines = csv.reader(stream, delimiter=delimiter, strict=True)
            next(lines)
            kept: list[list[str]] = []
            for line in lines:
                row += 1
                if line and len(line) != len(columns):
                    raise bad(file.shown, f"row {row} has {len(line)} cells; the header has {len(columns)}")
                if line:
                    kept.append([line[pick] for pick in picks])
                if len(kept) == BATCH:
                    yield _csv_batch(file, kept, wanted, start, row - len(kept) + 1)
                    kept = []
            if kept:
                yield _csv_batch(file, kept, wanted, start, row - len(kept) + 1)
    except UnicodeDecodeError as error:
        raise bad(file.shown, f"is not valid UTF-8 after row {row} ({error.reason})") from None
    except (csv.Error, OSError) as error:
        raise bad(file.shown, f"row {row + 1} cannot be read ({error})") from None


def _csv_batch(file: File, rows: list[list[str]], wanted: Sequence[str], start: int, first: int) -> Batch:
    splits = [row[1].strip() for row in rows] if start == 2 else []
    try:
        numbers = np.array([row[start:] for row in rows]).astype(np.float64)
    except ValueError:
        raise _not_a_number(file, rows, wanted, start, first) from None
    return Batch([row[0] for row in rows], splits, numbers, first)


def _not_a_number(
    file: File, rows: list[list[str]], wanted: Sequence[str], start: int, first: int
) -> UserError:
    for at, row in enumerate(rows):
        for name, cell in zip(wanted[start:], row[start:], strict=True):
            try:
                float(cell)
            except ValueError:
                why = f"row {first + at}: column {name!r} is {cell[:40]!r}, which is not a number"
                return bad(file.shown, why, row[0])
    return bad(file.shown, f"rows from {first} hold something that is not a number")


def _reading_csv(file: File) -> Any:
    return open(file.path, encoding="utf-8-sig", newline="")


def _parquet(file: File) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            f"{file.shown} is a Parquet file, which needs pyarrow; install it with "
            "`pip install 'fedopt[parquet]'`, or save the table as CSV"
        ) from None
    try:
        return pyarrow.parquet.ParquetFile(file.path)
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged(file.shown, error) from None


def _parquet_batches(file: File, roles: Roles, wanted: Sequence[str]) -> Iterator[Batch]:
    table = _parquet(file)
    import pyarrow

    _pick(file, table.schema_arrow.names, wanted)
    start, row = (2 if roles.split else 1), 1
    try:
        for batch in table.iter_batches(BATCH, columns=list(wanted)):
            cells = [batch.column(name).to_pylist() for name in wanted[:start]]
            texts = [["" if value is None else str(value) for value in column] for column in cells]
            numbers = [_parquet_numbers(file, name, batch.column(name)) for name in wanted[start:]]
            splits = texts[1] if roles.split else []
            yield Batch(texts[0], splits, np.stack(numbers, axis=1), row)
            row += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged(file.shown, error) from None


def _parquet_numbers(file: File, name: str, column: Any) -> Array:
    import pyarrow

    kind = column.type
    if not (
        pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
    ):
        raise bad(file.shown, f"column {name!r} is of type {kind}, which is not a number")
    return np.asarray(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False))
