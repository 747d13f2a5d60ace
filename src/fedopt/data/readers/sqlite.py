"""TFF's SQLite files: a row per example, `examples(split_name, client_id, serialized_example_proto)`.

Rows of a client are read in the order of their row ids, clients in the order of their ids, which the file's
own index gives without sorting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote

import numpy as np

from fedopt.data.readers import example_proto
from fedopt.data.readers.base import Candidate, Field, File, RawClient, SplitSource, bad, client_id, damaged

PROBES = 3
ROWS = """SELECT client_id, serialized_example_proto FROM examples
          WHERE split_name = ? ORDER BY client_id, rowid"""


def candidates(
    files: Sequence[File], fields: Sequence[str], names: Mapping[str, Sequence[str]]
) -> list[Candidate]:
    """Files whose examples have the first of these fields; `names` are the split names to look for."""
    found = []
    for file in files:
        counts = split_counts(file)
        chosen = {split: next((n for n in some if n in counts), None) for split, some in names.items()}
        present = {split: name for split, name in chosen.items() if name is not None}
        if not present or fields[0] not in field_names(file, next(iter(present.values()))):
            continue
        splits = {
            split: SplitSource(partial(clients, file, name, tuple(fields)), counts[name])
            for split, name in present.items()
        }
        notes = {"split_names": present}
        found.append(Candidate("TFF SQLite", file.shown, splits, (file,), notes))
    return found


def split_counts(file: File) -> dict[str, int | None]:
    """The splits of a file, with their numbers of clients where the file says so."""
    with _opened(file) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if b"examples" not in tables:
            held = ", ".join(sorted(name.decode(errors="replace") for name in tables)) or "none"
            raise bad(file.shown, f"has no table `examples`, as TFF's files have; its tables: {held}")
        if b"client_metadata" in tables:
            rows = database.execute("SELECT split_name, count(*) FROM client_metadata GROUP BY split_name")
            counts = {_text(file, name): int(n) for name, n in rows}
            if counts:
                return dict(counts)
        rows = database.execute("SELECT DISTINCT split_name FROM examples")
        return {_text(file, name): None for (name,) in rows}


def field_names(file: File, split: str) -> set[str]:
    """The features of the first few examples of a split."""
    query = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? LIMIT ?"
    with _opened(file) as database:
        rows = database.execute(query, (split, PROBES)).fetchall()
    found: set[str] = set()
    for client, blob in rows:
        try:
            found |= example_proto.keys(blob)
        except (ValueError, TypeError) as error:
            raise bad(file.shown, f"an example is damaged ({error})", _client(file, client)) from None
    return found


def clients(file: File, split: str, fields: Sequence[str]) -> Iterator[RawClient]:
    """The clients of a split, one in memory at a time."""
    with _opened(file) as database:
        expected = _expected(file, database, split)
        counted = bool(expected)
        for raw, rows in groupby(database.execute(ROWS, (split,)), key=itemgetter(0)):
            client = _client(file, raw)
            examples = [_decode(file, client, blob, fields) for _, blob in rows]
            if counted and (stated := expected.pop(client, 0)) != len(examples):
                raise bad(file.shown, f"has {len(examples)} examples; client_metadata says {stated}", client)
            yield RawClient(file.shown, client, _stack(file, client, examples, fields))
        for client in sorted(expected)[:1]:
            raise bad(file.shown, "is in client_metadata but has no examples", client)


def _expected(file: File, database: sqlite3.Connection, split: str) -> dict[str, int]:
    """Examples of each client as the file says; empty where it has no such table."""
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'client_metadata'"
    if not database.execute(query).fetchone()[0]:
        return {}
    query = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?"
    return {_client(file, client): n for client, n in database.execute(query, (split,))}


def _decode(file: File, client: str, blob: object, fields: Sequence[str]) -> dict[str, example_proto.Value]:
    try:
        if not isinstance(blob, bytes):
            raise ValueError("not a blob")
        example = example_proto.decode(blob, fields)
    except ValueError as error:
        raise bad(file.shown, f"an example is damaged ({error})", client) from None
    if missing := [field for field in fields if field not in example]:
        raise bad(file.shown, f"an example has no field {missing[0]!r}", client)
    return example


def _stack(
    file: File, client: str, examples: Sequence[Mapping[str, example_proto.Value]], fields: Sequence[str]
) -> dict[str, Field]:
    """One field per column: texts as a list, numbers as an array with a row per example."""
    columns: dict[str, Field] = {}
    for field in fields:
        values = [example[field] for example in examples]
        shapes = {(isinstance(value, list), len(value)) for value in values}
        if len(shapes) != 1 or shapes == {(True, 0)} or any(text and n != 1 for text, n in shapes):
            raise bad(file.shown, f"examples differ in the size of field {field!r}", client)
        if shapes.pop()[0]:
            columns[field] = [value[0] for value in values]
        else:
            rows = np.stack(values)  # no lists among them
            columns[field] = rows.reshape(-1) if rows.shape[1:] == (1,) else rows
    return columns


def _client(file: File, raw: object) -> str:
    return client_id(file.shown, raw if isinstance(raw, bytes) else str(raw).encode())


def _text(file: File, raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)


@contextmanager
def _opened(file: File) -> Iterator[sqlite3.Connection]:
    _check_size(file)
    try:
        uri = f"file:{quote(str(file.path.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.text_factory = bytes  # ids are checked here, not in the library
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            yield database
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:  # the last two from damaged pages
        raise damaged(file.shown, error) from None


def _check_size(file: File) -> None:
    """A cut file is noticed at once: the header holds the number of pages."""
    header = _head(file.path)
    if len(header) < 100:
        raise damaged(file.shown, "its header is cut")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    size = file.path.stat().st_size
    current = header[24:28] == header[92:96]  # else an old library wrote last and left the number alone
    if current and size < pages * (65536 if page == 1 else page):
        raise damaged(file.shown, f"{size:,} bytes of {pages * page:,}")


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(100)
