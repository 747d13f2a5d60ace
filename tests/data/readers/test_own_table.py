"""A user's table: CSV and Parquet give the same store, and the first invalid cell is reported."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
import torch.nn.functional as F
from rejected import rejected_import

import fedopt
from fedopt.data.importing.datasets import ImportOptions, table_columns
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import table
from fedopt.data.readers.base import TableColumns
from fedopt.data.store import Store
from fedopt.errors import DataError, UnknownName, UserError

TABLE = "user,age,height,y,part\nzoe,1,0.5,0,train\nadam,2,1.5,1,train\nzoe,3,2.5,1,test\nzoe,4,3.5,0,train\n"
COLUMNS = TableColumns("user", "y", split="part")


def import_table(path: Path, to: Path, columns: TableColumns) -> Store:
    return import_dataset("own", [path], to, ImportOptions(columns=columns)).store


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pa.parquet.write_table(pa.table(columns), path)
    return path


def write_table(directory: Path, format: str, table: str) -> Path:
    path = directory / ("table.parquet" if format == "parquet" else "table.csv")
    if format == "parquet":
        pa.parquet.write_table(pa.csv.read_csv(BytesIO(table.encode())), path)
    elif format == "semicolons":
        path.write_text(table.replace(",", ";"))
    elif format == "tabs":
        path.write_text(table.replace(",", "\t"))
    elif format == "byte order mark":
        path.write_text("\ufeff" + table, encoding="utf-8")
    elif format == "quoted":
        path.write_text("".join(",".join(f'"{c}"' for c in row.split(",")) + "\r\n" for row in table.split()))
    elif format == "empty lines":
        path.write_text(table.replace("\n", "\n\n"))
    return path


@pytest.mark.parametrize(
    "format", ["byte order mark", "semicolons", "tabs", "quoted", "empty lines", "parquet"]
)
def test_rows_are_grouped_by_client(tmp_path: Path, format: str) -> None:
    store = import_table(write_table(tmp_path, format, TABLE), tmp_path / "out", COLUMNS)
    train, test = store.split("train"), store.split("test")
    assert list(train.ids) == ["adam", "zoe"] and list(test.ids) == ["zoe"]
    zoe = train.columns(1)
    assert zoe["features"].tolist() == [[1, 0.5], [4, 3.5]] and zoe["label"].tolist() == [0, 0]
    assert zoe["features"].dtype == np.float32 and zoe["label"].dtype == np.int64
    notes = store.manifest["notes"]
    assert (notes["features"], notes["label"], notes["client"]) == (["age", "height"], "y (integer)", "user")


def test_tables_larger_than_a_block_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BLOCK", 64)
    lines = [f"c{i % 7},{i / 8},{i % 3}" for i in range(500)]
    (tmp_path / "train.csv").write_text("client,x,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "test.csv").write_text("client,x,y\nc0,1,1\n")
    train = import_table(tmp_path, tmp_path / "out", TableColumns("client", "y")).split("train")
    assert train.sizes.tolist() == [72, 72, 72, 71, 71, 71, 71]
    for position in range(7):
        numbers = np.arange(position, 500, 7)
        columns = train.columns(position)
        assert columns["features"].tolist() == [[i / 8] for i in numbers.tolist()]
        assert columns["label"].tolist() == (numbers % 3).tolist()


def test_quoted_cells_may_have_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('c,x,y,comment\na,1,1,"two\nlines"\na,2,0,"one ""quoted"" line"\n')
    (tmp_path / "test.csv").write_text('c,x,y,comment\na,1,1,""\n')
    store = import_table(tmp_path, tmp_path / "out", TableColumns("c", "y", ("x",)))
    assert store.split("train").columns(0)["features"].tolist() == [[1], [2]]


def test_client_ids_are_text_without_surrounding_spaces(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('c,x,y\n007,1,1\nNA,2,1\n"a,b",3,1\n 7 ,4,1\n')
    (tmp_path / "test.csv").write_text("c,x,y\n007,1,1\n")
    store = import_table(tmp_path, tmp_path / "out", TableColumns("c", "y"))
    assert list(store.split("train").ids) == sorted(["007", "NA", "a,b", "7"])


@pytest.mark.parametrize(
    "values", [[3, 1, 3], ["3", "1", "3"], [b"3", b"1", b"3"]], ids=["integers", "text", "bytes"]
)
def test_client_ids_of_any_parquet_type_become_text(tmp_path: Path, values: list[Any]) -> None:
    columns = {"c": values, "x": [1.0, 2.0, 3.0], "y": [0, 1, 0], "s": ["train", "train", "test"]}
    path = write_parquet(tmp_path / "t.parquet", columns)
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", split="s"))
    assert list(store.split("train").ids) == ["1", "3"] and list(store.split("test").ids) == ["3"]


def test_one_column_may_be_client_and_label(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("c,x\na,1\na,2\nb,3\n")
    train = import_table(tmp_path / "t.csv", tmp_path / "out", TableColumns("c", "c")).split("train")
    assert list(train.ids) == ["a", "b"] and train.columns(1)["label"].tolist() == [1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_text_of_any_parquet_type_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    columns = {"c": pa.array(["a", "b"] * 2).cast(kind), "x": [1, 2, 3, 4], "y": [0, 1, 0, 1]}
    path = write_parquet(tmp_path / "t.parquet", columns)
    store = import_table(path, tmp_path / "out", TableColumns("c", "y"))
    assert list(store.split("train").ids) == ["a", "b"]


def test_row_longer_than_a_block_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"c,y,x\na,1," + b"9" * (9 << 20))
    with pytest.raises(DataError, match="a row that is longer than 4 MB"):
        import_table(tmp_path / "t.csv", tmp_path / "out", TableColumns("c", "y"))


def test_splits_may_be_separate_files(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("c,x,y\na,1,2.5\nb,2,3\n")
    (tmp_path / "test.csv").write_text("c,x,y\na,5,6\n")
    store = import_table(tmp_path, tmp_path / "out", TableColumns("c", "y"))
    assert list(store.split("train").ids) == ["a", "b"] and list(store.split("test").ids) == ["a"]
    label = store.split("train").columns(0)["label"]
    assert label.tolist() == [2.5] and label.dtype == np.float32


def test_without_splits_a_share_of_each_clients_rows_is_the_test_split(tmp_path: Path) -> None:
    lines = [f"{client},{i},{i % 2}" for client, n in (("a", 10), ("b", 2), ("c", 1)) for i in range(n)]
    (tmp_path / "t.csv").write_text("c,x,y\n" + "\n".join(lines) + "\n")
    store = import_table(tmp_path / "t.csv", tmp_path / "out", TableColumns("c", "y", test_share=0.3))
    train, test = store.split("train"), store.split("test")
    assert train.sizes.tolist() == [7, 1, 1] and test.sizes.tolist() == [3, 1]  # c keeps its only row
    a = train.columns(0)["features"].tolist() + test.columns(0)["features"].tolist()
    assert sorted(a) == [[i] for i in range(10)]


# -- labels


@pytest.mark.parametrize("format", ["csv", "parquet", "categories"])
def test_text_labels_become_integers_in_sorted_order(tmp_path: Path, format: str) -> None:
    labels = ["dog", "ant", "cat", "ant"]
    if format == "csv":
        path = tmp_path / "t.csv"
        path.write_text(
            "c,x,y,s\n" + "".join(f"a,{i},{y},train\n" for i, y in enumerate(labels)) + "a,9,cat,test\n"
        )
    else:
        y = pa.array([*labels, "cat"])
        y = y.dictionary_encode() if format == "categories" else y
        columns = {"c": ["a"] * 5, "x": [0, 1, 2, 3, 9], "y": y, "s": ["train"] * 4 + ["test"]}
        path = write_parquet(tmp_path / "t.parquet", columns)
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", split="s"))
    assert store.manifest["notes"]["labels"] == {"ant": 0, "cat": 1, "dog": 2}
    label = store.split("train").columns(0)["label"]
    assert label.tolist() == [2, 0, 1, 0] and label.dtype == np.int64
    assert store.split("test").columns(0)["label"].tolist() == [1]


@pytest.mark.parametrize(("labels", "kind"), [([True, False], np.int64), ([0.5, 2.0], np.float32)])
def test_parquet_labels_may_be_booleans_or_floats(tmp_path: Path, labels: list[Any], kind: type) -> None:
    columns = {"c": ["a", "a"], "x": [1, 2], "y": labels, "s": ["train", "test"]}
    path = write_parquet(tmp_path / "t.parquet", columns)
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", split="s"))
    label = store.split("train").columns(0)["label"]
    assert label.tolist() == [float(labels[0])] and label.dtype == kind


# -- invalid cells


@pytest.mark.parametrize(
    ("old", "new", "line", "column"),
    [
        ("adam,2", "adam,two", 3, "age"),
        ("adam,2", "adam,true", 3, "age"),
        ("adam,2", "adam,", 3, "age"),
        ("adam,2", "adam,inf", 3, "age"),
        ("adam,2", "adam,nan", 3, "age"),
        ("adam,2", "adam,1e300", 3, "age"),
        ("1.5,1", "1.5,1e300", None, "y"),
        ("1.5,1", "1.5,one", None, "y"),
        ("1.5,1", "1.5,", 3, "y"),
        ("adam,2", ",2", 3, "user"),
        ("adam,2", "nan,2", 3, "user"),
        ("adam,2", '"ad\nam",2', 3, "user"),
        ("adam,2", "adam,2,2", 3, None),
        ("adam,2", "ad\udce9m,2", 3, None),
        ("test", "tset", None, "part"),
        (",height", ",age", None, None),
        ("test", "train", None, None),
    ],
)
def test_invalid_cell_is_reported_with_row_and_column(
    places, old: str, new: str, line: int | None, column: str | None
) -> None:
    path = places.source / "t.csv"
    path.write_bytes(TABLE.replace(old, new).encode(errors="surrogateescape"))
    error = rejected_import("own", path, places.to, columns=COLUMNS)
    assert (error.path, error.line, error.column) == (path, line, column)
    assert str(error).startswith(f"{path}: ")


@pytest.mark.parametrize("column", ["y", "comment"])
def test_quotation_mark_that_is_not_closed_is_rejected(places, column: str) -> None:
    path = places.source / "t.csv"
    path.write_text(f'c,x,{column}\na,1,2\na,2,"3\na,3,4\n')
    columns = TableColumns("c", "y") if column == "y" else TableColumns("c", "x", ("x",))
    error = rejected_import("own", path, places.to, columns=columns)
    assert (error.path, error.line) == (path, 3)


def test_number_among_text_labels_is_rejected(places) -> None:
    path = places.source / "t.csv"
    path.write_text("c,x,y\na,1,cat\na,2,3\n")
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert error.column == "y" and "'cat'" in str(error)


@pytest.mark.parametrize(
    ("changes", "line", "column"),
    [
        ({"x": [1.0, None]}, 2, "x"),
        ({"x": [1.0, float("nan")]}, 2, "x"),
        ({"x": [1.0, 1e39]}, 2, "x"),
        ({"y": [0, 2**60]}, None, "y"),
        ({"x": ["1", "2"]}, None, "x"),
        ({"s": ["train", "valid"]}, None, "s"),
        ({"y": ["cat", None]}, 2, "y"),
        ({"c": ["a", None]}, 2, "c"),
        ({"x": [[1.0], [2.0]]}, None, "x"),
    ],
)
def test_invalid_parquet_cell_is_reported(
    places, changes: dict[str, Any], line: int | None, column: str
) -> None:
    columns = {"c": ["a", "a"], "x": [1.0, 2.0], "y": [0, 1], "s": ["train", "test"]} | changes
    path = write_parquet(places.source / "t.parquet", columns)
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y", split="s"))
    assert (error.path, error.line, error.column) == (path, line, column)


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.csv", b"a b c\n"), ("t.csv", b""), ("t.csv", b"c,x,y\n"), ("t.parquet", b"PAR1....PAR1")],
    ids=["no columns", "empty file", "no rows", "damaged Parquet"],
)
def test_file_without_a_table_is_rejected(places, name: str, content: bytes) -> None:
    (places.source / name).write_bytes(content)
    columns = TableColumns("a b c", "y") if content == b"a b c\n" else TableColumns("c", "y")
    error = rejected_import("own", places.source / name, places.to, columns=columns)
    assert error.path == places.source / name


def test_unknown_column_is_rejected_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE.replace("user", "usr"))
    with pytest.raises(UnknownName) as caught:
        import_table(tmp_path / "t.csv", tmp_path / "out", COLUMNS)
    assert caught.value.kind.startswith("column") and caught.value.name == "user"
    assert "did you mean 'usr'" in str(caught.value) and "t.csv" in str(caught.value)


# -- values that would change


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "first", "second"),
    [("c", "n", "n "), ("c", "n", " n"), ("y", "cat", " cat"), ("c", "a", "nan")],
)
def test_texts_that_would_become_one_or_a_missing_value_are_rejected(
    places, format: str, column: str, first: str, second: str
) -> None:
    cells = {"c": ["a", "b"], "x": [1, 2], "y": ["cat", "dog"], column: [first, second]}
    path = places.source / f"t.{format}"
    if format == "parquet":
        write_parquet(path, cells)
    else:
        rows = [cells, *zip(*cells.values(), strict=True)]
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert (error.path, error.column) == (path, column)


def test_missing_parquet_id_is_not_a_client_called_nan(places) -> None:
    columns = {"c": pa.array([1.0, float("nan")]), "x": [1.0, 2.0], "y": [0, 1]}
    path = write_parquet(places.source / "t.parquet", columns)
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert (error.line, error.column) == (2, "c")


LARGE = {
    "CSV": "16777217",
    "CSV with a point": "-16777217.0",
    "CSV beyond double precision": str(2**53 + 1),
    "Parquet int64": pa.array([16777217]),
    "Parquet double": pa.array([16777217.0]),
    "Parquet beyond double precision": pa.array([2**53 + 1]),
    "Parquet uint64": pa.array([2**64 - 1], pa.uint64()),
}


def write_cell(directory: Path, column: str, *cells: Any) -> Path:
    """Write a table with a row for each cell."""
    other = "xy".replace(column, "")
    if isinstance(cells[-1], str):
        path = directory / "t.csv"
        path.write_text(f"c,{column},{other}\n" + "".join(f"a,{cell},1\n" for cell in cells))
        return path
    values = pa.concat_arrays(cells)
    columns = {"c": ["a"] * len(cells), column: values, other: [1] * len(cells)}
    return write_parquet(directory / "t.parquet", columns)


@pytest.mark.parametrize("cell", LARGE.values(), ids=LARGE)
def test_integers_that_single_precision_would_round_are_rejected(places, cell: Any) -> None:
    """2^24 + 1 would be stored as 2^24, and 2^53 + 1 as 2^53."""
    first = "3" if isinstance(cell, str) else pa.array([3], cell.type)
    path = write_cell(places.source, "x", first, cell)
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert error.path == path and "single precision" in str(error) or "not in range" in str(error)


@pytest.mark.parametrize(("first", "second"), [("1", "16777216"), ("1", "33554432"), ("0.5", "16777217")])
def test_other_large_numbers_are_accepted(tmp_path: Path, first: str, second: str) -> None:
    """Integers that single precision holds, and a column of fractions."""
    path = write_cell(tmp_path, "x", first, second)
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", test_share=0.5))
    stored = [store.split(name).columns(0)["features"][0, 0] for name in ("train", "test")]
    assert sorted(stored) == [np.float32(first), np.float32(second)]


def test_large_integer_labels_are_exact(tmp_path: Path) -> None:
    path = write_cell(tmp_path, "y", pa.array([1]), pa.array([2**53 - 1]))
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", test_share=0.5))
    labels = [store.split(name).columns(0)["label"][0] for name in ("train", "test")]
    assert sorted(labels) == [1, 2**53 - 1]


# -- files


COLUMNS_OF_FRAME = TableColumns("client", "label")
FRAME = pd.DataFrame(
    {"client": ["c0", "c1"] * 5, "label": [0, 1] * 5, "a": np.arange(10) / 7, "part": ["train", "test"] * 5}
)
PLAIN = FRAME[["client", "label", "a"]]


@pytest.mark.parametrize(
    ("first", "second"), [("t.csv", "t.parquet"), ("t.csv", "t.tsv"), ("csv/t.csv", "parquet/t.parquet")]
)
def test_one_table_in_two_formats_is_not_merged(first: str, second: str, places) -> None:
    for name in (first, second):
        file = places.source / name
        file.parent.mkdir(exist_ok=True)
        if file.suffix == ".parquet":
            PLAIN.to_parquet(file)
        else:
            PLAIN.to_csv(file, index=False, sep="\t" if file.suffix == ".tsv" else ",")
    error = rejected_import("own", places.source, places.to, columns=COLUMNS_OF_FRAME)
    assert error.path == places.source / second and "t.csv" in str(error)


def test_copy_of_a_table_is_rejected(places) -> None:
    for name in ("t.csv", "t (copy).csv"):
        PLAIN.to_csv(places.source / name, index=False)
    assert rejected_import("own", places.source, places.to, columns=COLUMNS_OF_FRAME).path == places.source


def test_files_without_a_split_in_their_names_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        PLAIN.iloc[5 * number :][:5].to_parquet(tmp_path / "in" / f"part-{number}.parquet")
    splits = import_table(tmp_path / "in", tmp_path / "out", COLUMNS_OF_FRAME).manifest["splits"]
    assert splits["train"]["examples"] + splits["test"]["examples"] == 10


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zip"])
def test_compressed_csv_is_read(tmp_path: Path, suffix: str) -> None:
    PLAIN.to_csv(tmp_path / f"t{suffix}", index=False)
    splits = import_table(tmp_path / f"t{suffix}", tmp_path / "out", COLUMNS_OF_FRAME).manifest["splits"]
    assert splits["train"]["examples"] + splits["test"]["examples"] == 10


def write_twice(path: Path) -> None:
    """Pandas names the second index of a file "Unnamed: 0.1" or "Unnamed: 0"."""
    PLAIN.to_csv(path)
    pd.read_csv(path).rename(columns={"Unnamed: 0": "Unnamed: 0.1"}).to_csv(path)


INDEXES = {
    "without a name": lambda d: PLAIN.to_csv(d / "t.csv"),
    "twice": lambda d: write_twice(d / "t.csv"),
    "of a Parquet file": lambda d: PLAIN.iloc[[3, 1, 2, 0, 4]].to_parquet(d / "t.parquet"),
}


@pytest.mark.parametrize("write", INDEXES.values(), ids=INDEXES)
def test_index_of_pandas_is_not_a_feature(places, write) -> None:
    write(places.source)
    store = import_table(places.source, places.to / "s", COLUMNS_OF_FRAME)
    assert store.manifest["notes"]["features"] == ["a"]


def test_import_with_another_split_column_is_not_the_same_import(places) -> None:
    FRAME.to_csv(places.source / "t.csv", index=False)
    by_share = TableColumns("client", "label", ("a",))
    by_column = TableColumns("client", "label", ("a",), split="part")
    target = places.to / "s"

    def is_new(columns: TableColumns, **options: bool) -> bool:
        options = ImportOptions(columns=columns, **options)
        return import_dataset("own", [places.source], target, options).is_new

    assert is_new(by_share) and not is_new(by_share)
    with pytest.raises(DataError, match="the same files imported with other options") as caught:
        is_new(by_column)
    assert caught.value.path == target and "(--split-column unset, not part)" in str(caught.value)
    assert is_new(by_column, replace=True) and not is_new(by_column)


HEADERS = {
    "quotation marks in a name": (b'client,label,"a ""b"""\n', 'a "b"'),
    "quotation mark inside a name": (b'client,label,5"\n', '5"'),
    "byte order mark": (b'\xef\xbb\xbf"client",label,a\n', "a"),
    "empty lines": (b"\n\r\nclient,label,a\n", "a"),
    "delimiters in a name": (b'client,label,"a,b;c"\n', "a,b;c"),
}


@pytest.mark.parametrize(("header", "name"), HEADERS.values(), ids=HEADERS)
def test_header_is_the_first_row(places, header: bytes, name: str) -> None:
    path = places.source / "t.csv"
    path.write_bytes(header + b"c,0,1\nc,1,2\n")
    notes = import_table(path, places.to / "s", COLUMNS_OF_FRAME).manifest["notes"]
    assert notes["features"] == [name]


NOT_UTF8 = {
    "Latin-1": ("client,label,a\nMüller,0,1\n".encode("latin-1"), "save it as UTF-8"),
    "UTF-16": ("client,label,a\nc,0,1\n".encode("utf-16"), "UTF-8 text"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize(("content", "message"), NOT_UTF8.values(), ids=NOT_UTF8)
def test_file_that_is_not_utf8_is_not_called_damaged(places, content: bytes, message: str) -> None:
    (places.source / "t.csv").write_bytes(content)
    error = rejected_import("own", places.source / "t.csv", places.to, columns=COLUMNS_OF_FRAME)
    assert error.path == places.source / "t.csv"
    assert message in str(error) and "damaged" not in str(error) and "train" not in str(error)


# -- options


@pytest.mark.parametrize(
    "options",
    [
        {"client": None},
        {"label": None},
        {"test_share": 1.0},
        {"test_share": 0.2, "split": "part"},
        {"name": "emnist"},
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        table_columns(**{"name": "own", "client": "c", "label": "y", **options})


def test_imported_table_is_trained_on(tmp_path: Path) -> None:
    """The label is the column that is 1, so a linear model learns it."""
    drawn = np.random.default_rng(0)
    label = drawn.integers(0, 3, 120)
    features = pd.DataFrame(np.eye(3)[label], columns=["a", "b", "c"])
    names = np.array(["Bonn", "Oslo", "Rome"])[label]
    frame = features.assign(user=drawn.choice(list("abcd"), 120), y=names)
    frame.to_csv(tmp_path / "t.csv", index=False)
    store = import_table(tmp_path / "t.csv", tmp_path / "out", TableColumns("user", "y"))
    assert store.manifest["notes"]["labels"] == {"Bonn": 0, "Oslo": 1, "Rome": 2}
    task = fedopt.own_task(lambda: torch.nn.Linear(3, 3), F.cross_entropy, tmp_path / "out")
    result = fedopt.run(task, rounds=10, config={"client.lr": 1.0, "clients_per_round": 3})
    assert result.test[-1]["accuracy"] == 1.0
