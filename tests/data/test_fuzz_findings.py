"""Damaged files that fuzzing has found. Each once ended in a traceback, a wrong number or a long wait."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import publicfiles as files
import pyarrow as pa
import pytest
from fuzz_targets import TARGETS
from pyarrow import parquet
from rejected import rejected_import
from smallstores import remove_checksums, write_small_store

from fedopt.data.readers.base import TableColumns
from fedopt.data.store import open_store
from fedopt.errors import DataError, UnknownName


def test_short_csv_row_that_is_not_utf8_is_rejected(places, capfd: pytest.CaptureFixture[str]) -> None:
    """Arrow passed the row to a handler as text, and the failed conversion was printed as a traceback."""
    (places.source / "t.csv").write_bytes(b"who,y,x\na,0,1\na,1,2\n\xff;b\n")
    error = rejected_import("own", places.source / "t.csv", places.to, columns=TableColumns("who", "y"))
    assert error.path == places.source / "t.csv"
    assert capfd.readouterr().err == ""


def test_column_name_with_a_line_break_is_listed_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'"wh\no",y,x\na,0,1\na,1,2\n')
    with pytest.raises(UnknownName) as caught:
        rejected_import("own", tmp_path / "t.csv", tmp_path / "out", columns=TableColumns("who", "y"))
    assert caught.value.name == "who" and "\n" not in str(caught.value)


def test_label_that_double_precision_would_change_is_rejected(places) -> None:
    """2^53 + 1 would be stored as 2^53."""
    (places.source / "t.csv").write_text("who,y,x\na,9007199254740993,1\na,1,2\n")
    error = rejected_import("own", places.source / "t.csv", places.to, columns=TableColumns("who", "y"))
    assert error.column == "y" and "9007199254740993" in str(error)


def test_parquet_text_that_is_not_utf8_is_rejected(places) -> None:
    buffers = pa.array([b"\xff\xfe", b"a", b"a"]).buffers()
    who = pa.Array.from_buffers(pa.string(), 3, buffers)
    parquet.write_table(
        pa.table({"who": who, "y": [0, 1, 0], "x": [1.0, 2.0, 3.0]}), places.source / "t.parquet"
    )
    error = rejected_import("own", places.source, places.to, columns=TableColumns("who", "y"))
    assert error.path == places.source / "t.parquet"


def test_table_with_very_many_columns_is_rejected_at_once(places) -> None:
    """The comparison of 300,000 names with each other took minutes."""
    names = ",".join(f"c{i}" for i in range(300_000))
    (places.source / "t.csv").write_text(f"who,y,{names}\na,1\n")
    error = rejected_import("own", places.source, places.to, columns=TableColumns("who", "y"))
    assert "300,002 columns" in str(error)


@pytest.mark.parametrize(
    "counts",
    ['{"a": true}', '{"a": 1.5}', '{"a": 2, "a": 1}', '{"a": Infinity}', '{"b\\ud800": 1}', '{"a": [1]}'],
)
def test_tag_count_with_an_invalid_entry_is_rejected(places, counts: str) -> None:
    files.write_hdf5(places.source, "stackoverflow", files.stackoverflow())
    files.write_counts(places.source)
    (places.source / "stackoverflow.tag_count").write_text(counts)
    error = rejected_import("stackoverflow", places.source, places.to)
    assert error.path == places.source / "stackoverflow.tag_count"


def test_message_does_not_contain_a_long_client_id(places) -> None:
    path = files.sqlite_all(places.source)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE examples SET client_id = ? WHERE client_id = 'f1'", ("x" * 1_000_000,))
    db.close()
    error = rejected_import("emnist", path, places.to)
    assert "has 1,000,000 bytes; allowed: 1,000" in str(error) and len(str(error)) < 500


def replace_header(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = path.read_bytes()
        assert old in content and len(old) == len(new)
        path.write_bytes(content.replace(old, new, 1))

    return change


def save(array: np.ndarray) -> Callable[[Path], None]:
    return lambda path: np.save(path, array)


STORES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "header that is not closed": ("train/offsets.npy", replace_header(b"}", b" ")),
    "offsets that decrease": ("train/offsets.npy", save(np.array([0, 9, 3]))),
    "offsets of another type": ("train/offsets.npy", save(np.array([0.0, 2.0, 3.0]))),
    "offsets beyond the end": ("train/offsets.npy", save(np.array([0, 2, 30]))),
    "row offsets that decrease": ("train/t.offsets.npy", save(np.array([0, 4, 3, 4]))),
    "ids that are not UTF-8": ("train/ids.values.npy", save(np.array([255, 254], np.uint8))),
    "column of another type": ("train/x.npy", save(np.zeros((3, 1), np.float64))),
}


@pytest.mark.parametrize(("name", "change"), STORES.values(), ids=STORES)
def test_store_with_a_damaged_array_is_rejected(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    """The size of the file is that of the manifest, which has no checksums."""
    store = tmp_path / "s"
    write_small_store(store)
    remove_checksums(store)
    change(store / name)
    with pytest.raises(DataError, match="is damaged") as caught:
        split = open_store(store).split("train")
        list(split.ids)
        [split.columns(client) for client in range(2)]
    assert caught.value.path == store / name and "\n" not in str(caught.value)


def test_undamaged_files_of_all_fuzz_targets_are_accepted(tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        assert target.run(target.seed(tmp_path / name), tmp_path / name), name
