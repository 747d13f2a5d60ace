"""TFF's SQLite files: damaged files and inconsistent tables are rejected with file and client."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import publicfiles as files
import pytest
from damagedfiles import Make, run_sql, scramble, truncate
from rejected import rejected_import

from fedopt.data.importing.importer import import_dataset


def fedjax(d: Path) -> Path:
    with sqlite3.connect(d / "emnist.sqlite") as db:
        db.execute("CREATE TABLE federated_data (client_id BLOB PRIMARY KEY, data BLOB)")
    db.close()
    return d / "emnist.sqlite"


FIRST = "(SELECT rowid FROM examples WHERE client_id = 'f1' AND split_name = 'all_train' LIMIT 1)"
REPLACE = f"UPDATE examples SET serialized_example_proto = ? WHERE rowid = {FIRST}"
SHORT = files.example({"label": 1, "pixels": np.ones(5, np.float32)})
CASES: dict[str, tuple[Make, str | None]] = {
    "truncated file": (truncate(files.sqlite_all, "emnist.sqlite", 0.5), None),
    "scrambled file": (scramble(files.sqlite_all, "emnist.sqlite"), None),
    "truncated header": (truncate(files.sqlite_all, "emnist.sqlite", 0.001), None),
    "another table layout": (fedjax, None),
    "examples without a column": (
        run_sql("ALTER TABLE examples RENAME COLUMN serialized_example_proto TO data"),
        None,
    ),
    "damaged example": (run_sql(REPLACE, b"\x0a\xff"), "f1"),
    "example without a field": (run_sql(REPLACE, files.example({"label": 1})), "f1"),
    "example of another size": (run_sql(REPLACE, SHORT), "f1"),
    "id that is not UTF-8": (
        run_sql("UPDATE examples SET client_id = CAST(x'ff41' AS TEXT) WHERE client_id = 'f1'"),
        None,
    ),
    "client with a missing example": (run_sql(f"DELETE FROM examples WHERE rowid = {FIRST}"), "f1"),
    "client without examples": (run_sql("DELETE FROM examples WHERE client_id = 'f2'"), "f2"),
}


@pytest.mark.parametrize(("make", "client"), CASES.values(), ids=CASES.keys())
def test_invalid_file_is_rejected(places, make: Make, client: str | None) -> None:
    error = rejected_import("emnist", make(places.source), places.to)
    assert (error.path, error.client) == (places.source / "emnist.sqlite", client)


def test_client_without_an_id_is_rejected(places) -> None:
    """It would be a client named None."""
    path = files.sqlite_all(places.source)
    with sqlite3.connect(path) as database:
        database.executescript(
            """CREATE TABLE copy AS SELECT split_name, nullif(client_id, 'f1') AS client_id,
                                           serialized_example_proto FROM examples;
               DROP TABLE client_metadata;
               DROP TABLE examples;
               ALTER TABLE copy RENAME TO examples;"""
        )
    database.close()
    assert rejected_import("emnist", path, places.to).path == path


def test_missing_column_is_named(places) -> None:
    make = run_sql("ALTER TABLE examples RENAME COLUMN serialized_example_proto TO data")
    message = str(rejected_import("emnist", make(places.source), places.to))
    assert "no column `serialized_example_proto`" in message and "split_name, client_id, data" in message


def test_table_without_row_ids_is_read(places) -> None:
    """The rows of a client are in the order of the primary key. Here this is the order of their row ids."""
    path = files.sqlite_all(places.source)
    expected = import_dataset("emnist", [path], places.to / "expected").store
    with sqlite3.connect(path) as database:
        database.executescript(
            """CREATE TABLE copy (split_name, client_id, number INTEGER, serialized_example_proto,
                                  PRIMARY KEY (split_name, client_id, number)) WITHOUT ROWID;
               INSERT INTO copy SELECT split_name, client_id, rowid, serialized_example_proto FROM examples;
               DROP TABLE examples;
               ALTER TABLE copy RENAME TO examples;"""
        )
    database.close()
    store = import_dataset("emnist", [path], places.to / "store").store
    for name in ("train/label.npy", "train/pixels.npy", "test/label.npy"):
        assert (store.directory / name).read_bytes() == (expected.directory / name).read_bytes()


@pytest.mark.parametrize(
    ("value", "message"),
    [("1", "an example is damaged (not a blob)"), ("zeroblob(2000000)", "more than 1,048,576 bytes")],
)
def test_value_that_cannot_be_read_is_described(
    places, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedopt.data.readers.limits.MAX_ARRAY", 1 << 20)
    make = run_sql(f"UPDATE examples SET serialized_example_proto = {value} WHERE rowid = {FIRST}")
    assert message in str(rejected_import("emnist", make(places.source), places.to))
