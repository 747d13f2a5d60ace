"""TFF's SQLite files: a table `examples(split_name, client_id, serialized_example_proto)`, a row per example.

Clients are read in the order of their ids and rows in the order of their row ids, or of the primary key of a
table WITHOUT ROWID. The index of the file
provides this order without sorting. Virtual tables and generated columns are rejected, because they compute
data that the file does not hold.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from urllib.parse import quote

import numpy as np

from fedopt.data.readers import example_proto
from fedopt.data.readers.base import (
    Field,
    FileSet,
    RawClient,
    SourceFile,
    SplitSource,
    data_error,
    decode_client_id,
    unreadable,
)
from fedopt.data.readers.limits import RAISE_LIMITS

ROWS_TO_PROBE = 3
MAX_LENGTH = 1_000_000_000  # bytes of a value; the largest limit of SQLite
STEPS_PER_CHECK = 1_000_000  # of the virtual machine of SQLite, between two checks of the time
TABLES = "sqlite_master WHERE type = 'table' AND rootpage > 0"  # without virtual tables
ROWS = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY client_id"
COLUMNS = {
    "examples": ("split_name", "client_id", "serialized_example_proto"),
    "client_metadata": ("split_name", "client_id", "num_examples"),
}


def find_file_sets(
    files: Sequence[SourceFile], fields: Sequence[str], split_names: Mapping[str, Sequence[str]]
) -> list[FileSet]:
    """Return the files whose examples have the field `fields[0]`, one set each.

    `split_names` lists, for each split, the names that it may have in a file.
    """
    file_sets = []
    for file in files:
        counts = count_clients(file)
        chosen = {
            split: next((name for name in names if name in counts), None)
            for split, names in split_names.items()
        }
        present = {split: name for split, name in chosen.items() if name is not None}
        if not present or fields[0] not in field_names(file, next(iter(present.values()))):
            continue
        splits = {
            split: SplitSource(partial(read_clients, file, name, tuple(fields)), counts[name])
            for split, name in present.items()
        }
        notes = {"split_names": present}
        file_sets.append(FileSet("TFF SQLite", file.display, splits, (file,), notes))
    return file_sets


def count_clients(file: SourceFile) -> dict[str, int | None]:
    """Return the number of clients of each split, or None if the file does not record it."""
    with _open_database(file) as database:
        tables = {name for (name,) in database.execute(f"SELECT name FROM {TABLES}")}
        if b"examples" not in tables:
            present = ", ".join(sorted(name.decode(errors="replace") for name in tables)) or "none"
            raise data_error(file, f"has no table `examples` as in TFF's files; its tables: {present[:200]}")
        _check_columns(file, database, tables)
        if b"client_metadata" in tables:
            rows = database.execute("SELECT split_name, count(*) FROM client_metadata GROUP BY split_name")
            counts = {_decode_text(name): int(n) for name, n in rows}
            if counts:
                return dict(counts)
        rows = database.execute("SELECT DISTINCT split_name FROM examples")
        return {_decode_text(name): None for (name,) in rows}


def field_names(file: SourceFile, split: str) -> set[str]:
    """Return the features of the first few examples of a split."""
    query = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? LIMIT ?"
    with _open_database(file) as database:
        rows = database.execute(query, (split, ROWS_TO_PROBE)).fetchall()
    names: set[str] = set()
    for client, blob in rows:
        try:
            if not isinstance(blob, bytes):
                raise ValueError("not a blob")
            names |= example_proto.feature_names(blob)
        except ValueError as error:
            name = _client_name(file, client)
            raise data_error(file, f"an example is damaged ({error})", client=name) from None
    return names


def read_clients(file: SourceFile, split: str, fields: Sequence[str]) -> Iterator[RawClient]:
    """Read the clients of a split, one at a time."""
    with _open_database(file) as database:
        expected = _expected_counts(file, database, split)
        check_counts = bool(expected)
        query = ", ".join([ROWS, *_row_order(database)])
        for raw, rows in groupby(database.execute(query, (split,)), key=itemgetter(0)):
            client = _client_name(file, raw)
            examples = [_decode(file, client, blob, fields) for _, blob in rows]
            if check_counts and (count := expected.pop(client, 0)) != len(examples):
                why = f"has {len(examples)} examples, but client_metadata has {count}"
                raise data_error(file, why, client=client)
            yield RawClient(file, client, _stack(file, client, examples, fields))
        for client, count in sorted(expected.items()):
            if count:
                why = f"has no examples, but client_metadata has {count}"
                raise data_error(file, why, client=client)
            yield RawClient(file, client, {field: [] for field in fields})


def _row_order(database: sqlite3.Connection) -> list[str]:
    """Return the columns that order the examples of a client."""
    try:
        database.execute("SELECT rowid FROM examples LIMIT 0")
    except sqlite3.OperationalError:  # a table WITHOUT ROWID, which has a primary key
        columns = database.execute("PRAGMA table_info(examples)").fetchall()
        keys = sorted((position, name) for _, name, _, _, _, position in columns if position)
        return ['"' + name.decode().replace('"', '""') + '"' for _, name in keys]
    return ["rowid"]


def _expected_counts(file: SourceFile, database: sqlite3.Connection, split: str) -> dict[str, int]:
    """Return the recorded number of examples of each client. Empty if the file does not record it."""
    query = f"SELECT count(*) FROM {TABLES} AND name = 'client_metadata'"
    if not database.execute(query).fetchone()[0]:
        return {}
    query = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?"
    return {_client_name(file, client): n for client, n in database.execute(query, (split,))}


def _decode(
    file: SourceFile, client: str, blob: object, fields: Sequence[str]
) -> dict[str, example_proto.ProtoValue]:
    try:
        if not isinstance(blob, bytes):
            raise ValueError("not a blob")
        file.reserve(len(blob), client)
        example = example_proto.decode(blob, fields)
    except ValueError as error:
        raise data_error(file, f"an example is damaged ({error})", client=client) from None
    if missing := [field for field in fields if field not in example]:
        raise data_error(file, f"an example has no field {missing[0]!r}", client=client)
    return example


def _stack(
    file: SourceFile,
    client: str,
    examples: Sequence[Mapping[str, example_proto.ProtoValue]],
    fields: Sequence[str],
) -> dict[str, Field]:
    """Combine examples: texts to a list, numbers to an array with a row per example."""
    columns: dict[str, Field] = {}
    for field in fields:
        values = [example[field] for example in examples]
        shapes = {(isinstance(value, list), len(value)) for value in values}
        if len(shapes) != 1 or shapes == {(True, 0)} or any(text and n != 1 for text, n in shapes):
            raise data_error(file, f"examples have different sizes of field {field!r}", client=client)
        if shapes.pop()[0]:
            columns[field] = [value[0] for value in values]
        else:
            rows = np.stack(values)  # no lists among them
            columns[field] = rows.reshape(-1) if rows.shape[1:] == (1,) else rows
    return columns


def _client_name(file: SourceFile, raw: object) -> str:
    if not isinstance(raw, bytes | int):
        raise data_error(file, f"has the client id {raw!r}; allowed: text or an integer")
    return decode_client_id(file, raw if isinstance(raw, bytes) else str(raw).encode())


def _decode_text(raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)


@contextmanager
def _open_database(file: SourceFile) -> Iterator[sqlite3.Connection]:
    _check_size(file)
    longest = min(file.budget.array_bytes, MAX_LENGTH)
    try:
        uri = f"file:{quote(os.fsencode(file.path.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.text_factory = bytes  # ids are decoded by `decode_client_id`
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, int(longest))
            database.set_progress_handler(lambda: file.budget.is_late, STEPS_PER_CHECK)
            yield database
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:  # damaged pages
        file.reserve(0)  # raises an error if the time is over, which interrupts a statement
        if "too big" in str(error):
            raise data_error(file, f"has a value of more than {longest:,.0f} bytes; {RAISE_LIMITS}") from None
        raise unreadable(file, error) from None


def _check_columns(file: SourceFile, database: sqlite3.Connection, tables: set[bytes]) -> None:
    for table, expected in COLUMNS.items():
        if table.encode() not in tables:
            continue
        columns = []
        for _, name, _, _, _, _, hidden in database.execute(f"PRAGMA table_xinfo({table})"):
            columns.append(name.decode(errors="replace")[:100])
            if hidden:
                raise data_error(
                    file, f"column {columns[-1]!r} of `{table}` is generated, which is not allowed"
                )
        known = {column.lower() for column in columns}
        if missing := [column for column in expected if column not in known]:
            present = ", ".join(columns)[:200]
            raise data_error(file, f"table `{table}` has no column `{missing[0]}`; its columns: {present}")


def _check_size(file: SourceFile) -> None:
    """Detect a truncated file: the header has the number of pages."""
    with open(file.path, "rb") as stream:
        header = stream.read(100)
    if len(header) < 100:
        raise unreadable(file, "the header is truncated")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    size = file.path.stat().st_size
    current = header[24:28] == header[92:96]  # otherwise an old library did not update the number
    if current and size < pages * (65536 if page == 1 else page):
        raise unreadable(file, f"{size:,} bytes of {pages * page:,}")
