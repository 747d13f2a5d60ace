"""A user's table in CSV or Parquet: a row per example, a client column, a label column and features.

Rows may be in any order. Features are written to a temporary file while reading and grouped by client
afterwards, so memory holds the client, the split and the label of each row, but not its features.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import compute

from fedopt import rng
from fedopt.data.readers.base import (
    FileSet,
    RawClient,
    SourceFile,
    SplitSource,
    TableColumns,
    data_error,
    split_from_name,
)
from fedopt.data.readers.table_columns import FeatureColumns, LabelColumn, TextCodes, find_categories
from fedopt.data.readers.table_files import column_names, index_columns
from fedopt.data.readers.table_rows import Numbers, read_rows
from fedopt.errors import DataError
from fedopt.files import disk_errors

SPLITS = ("train", "test", "heldout")
SUFFIXES = (".csv", ".tsv", ".parquet")
# Names that pandas gives to an index without a name, in a file that it wrote or read and wrote again.
INDEX = re.compile(r"|Unnamed: \d+(\.\d+)*|__index_level_\d+__")


def find_file_sets(files: Sequence[SourceFile], columns: TableColumns, scratch: Path) -> list[FileSet]:
    """Return all tables among `files` as one set. `scratch` is a directory for temporary files."""
    tables = [file for file in files if file.format == "parquet" or _is_csv(file, only=len(files) == 1)]
    if not tables:
        return []
    _check_copies(tables)
    names = columns.features or _other_columns(tables[0], columns)
    with disk_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    categories = find_categories(tables, columns, names)
    table = _Table(FeatureColumns(scratch / "features.f32", names, categories, columns), columns)
    for file in tables:
        table.read(file)
    splits = table.splits(tables)
    label = "text" if table.labels.is_text else "integer" if table.labels.are_integers else "float32"
    notes = {
        **table.features.notes(),
        "label": f"{columns.label} ({label})",
        "client": columns.client,
    }
    if table.labels.is_text:
        notes["labels"] = table.labels.text_to_integer()
    if table.drawn_test:
        notes["test"] = f"{table.drawn_test}, drawn with seed {columns.seed}"
    return [FileSet("table", tables[0].display, splits, tuple(tables), notes)]


def _check_copies(tables: Sequence[SourceFile]) -> None:
    """Reject files that may hold the same rows twice, which would put test rows into the training split."""
    first: dict[str | None, SourceFile] = {}  # by split
    sizes: dict[int, list[SourceFile]] = {}
    for file in tables:
        other = first.setdefault(split_from_name(file.location), file)
        if _table_format(other) != _table_format(file):
            why = f"is a table, and so is {other.display} in another format; rows could occur twice"
            raise data_error(file, f"{why}: name the file or directory to import")
        for same_size in sizes.setdefault(file.path.stat().st_size, []):
            if filecmp.cmp(file.path, same_size.path, shallow=False):
                raise data_error(file, f"is a copy of {same_size.display}; name the file to import")
        sizes[file.path.stat().st_size].append(file)


class _Table:
    """The rows of all files: features on disk; clients, splits and labels in memory."""

    def __init__(self, features: FeatureColumns, columns: TableColumns) -> None:
        self.features, self.columns = features, columns
        self.client_codes, self.split_codes = TextCodes(), TextCodes()
        self.labels = LabelColumn(columns.label)
        self.drawn_test = ""  # description of a test split that was drawn at random

    def read(self, file: SourceFile) -> None:
        """Append the rows of a file."""
        named_split = split_from_name(file.location) or ""
        for rows in read_rows(file, self.columns, self.features.names):
            rows = self.features.drop_missing(rows, self.columns.label)
            if not len(rows.lines):
                continue
            rows.check_text(rows.clients, self.columns.client)
            rows.check_spelling(self.columns.client, self.client_codes.spellings)
            splits = pa.array([named_split] * len(rows.clients), pa.string())
            if self.columns.split is not None:
                splits = rows.text(self.columns.split)
                valid = compute.is_in(splits, pa.array(SPLITS))
                rows.check(valid, self.columns.split, f"is not a split; allowed: {', '.join(SPLITS)}")
            self.client_codes.add(rows.clients)
            self.split_codes.add(splits)
            self.labels.add(rows)
            self.features.add(rows)

    def splits(self, files: Sequence[SourceFile]) -> dict[str, SplitSource]:
        """Return the clients of each split. Without named splits, draw a test split."""
        if not self.client_codes.parts:
            raise data_error(files[0], "holds no rows")
        clients, splits = self.client_codes.all(), self.split_codes.all()
        names = self.split_codes.known
        if set(names) == {""}:
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
            if self.columns.test_clients is not None:
                raise data_error(files[0], "names its split already, so --test-clients has no effect")
            chosen = {name: np.flatnonzero(splits == code) for name, code in names.items()}
        self.features.finish(files[0], chosen.get("train", np.arange(len(clients))))
        labels = self.labels.all()
        return {
            name: SplitSource(
                partial(self._clients, files[0], clients, labels, rows), len(np.unique(clients[rows]))
            )
            for name, rows in chosen.items()
        }

    def _draw_test_rows(self, file: SourceFile, clients: Numbers) -> Numbers:
        if self.columns.test_clients is not None:
            return self._draw_test_clients(file, clients, self.columns.test_clients)
        self.drawn_test = f"{self.columns.test_share:g} of each client's rows"
        test = np.zeros(len(clients), dtype=bool)
        order, starts = _group_by_client(clients, np.arange(len(clients)))
        for client, code in self.client_codes.known.items():
            rows = order[starts[code] : starts[code + 1]]
            count = min(max(1, round(self.columns.test_share * len(rows))), len(rows) - 1)
            test[rng.generator(self.columns.seed, "holdout", client).permutation(rows)[:count]] = True
        if not test.any():
            raise data_error(file, "every client has a single row, so the test split would be empty")
        return test

    def _draw_test_clients(self, file: SourceFile, clients: Numbers, wanted: float) -> Numbers:
        """Return which rows belong to the test clients: a number of clients, or a share below 1 of them."""
        total = len(self.client_codes.known)
        count = max(1, round(wanted * total)) if wanted < 1 else round(wanted)
        if count >= total:
            raise data_error(file, f"has {total} clients, so {count} of them cannot be test clients")
        self.drawn_test = f"{count} of {total} clients"
        names = rng.generator(self.columns.seed, "test clients").permutation(sorted(self.client_codes.known))
        codes = [self.client_codes.known[str(name)] for name in names[:count]]
        return np.isin(clients, codes)

    def _clients(
        self, file: SourceFile, clients: Numbers, labels: Numbers, rows: Numbers
    ) -> Iterator[RawClient]:
        order, starts = _group_by_client(clients, rows)
        for client, code in sorted(self.client_codes.known.items()):
            own = order[starts[code] : starts[code + 1]]
            if len(own):  # otherwise the client has rows in another split only
                yield RawClient(file, client, {"features": self.features.read(own), "label": labels[own]})


def _other_columns(file: SourceFile, columns: TableColumns) -> tuple[str, ...]:
    names = column_names(file, columns.client)[0]
    used = [columns.client, columns.label, columns.split]
    used += index_columns(file) if file.format == "parquet" else []
    features = tuple(name for name in names if name not in used and not INDEX.fullmatch(name))
    if not features:
        raise data_error(file, f"has only the columns {', '.join(names)}, so there are no features")
    return features


def _is_csv(file: SourceFile, only: bool) -> bool:
    return file.format == "text" and (only or file.path.suffix.lower() in (".csv", ".tsv"))


def _table_format(file: SourceFile) -> str:
    return file.format if file.format == "parquet" else file.path.suffix.lower()


def _group_by_client(clients: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return `rows` sorted by client and then by row, and the position at which each client starts."""
    order = rows[np.argsort(clients[rows], kind="stable")]
    return order, np.searchsorted(clients[order], np.arange(clients.max() + 2))
