"""A user's table: CSV and Parquet give the same store, and the first invalid cell is reported."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from rejected import rejected_import

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import table_files
from fedopt.data.readers.base import TableColumns
from fedopt.data.store import Store
from fedopt.errors import DataError, UnknownName

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
    monkeypatch.setattr(table_files, "BYTES_PER_BLOCK", 64)
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
    (tmp_path / "train.csv").write_text('c,x,y,comment\na,1,1,"two\nlines"\na,2,0,"two\nlines"\n')
    (tmp_path / "test.csv").write_text('c,x,y,comment\na,1,1,"one ""quoted"" line"\n')
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
    ("old", "new", "line", "client", "column"),
    [
        ("adam,2", "adam,two", 3, "adam", "age"),
        ("adam,2", "adam,", 3, "adam", "age"),
        ("adam,2", "adam,inf", 3, "adam", "age"),
        ("adam,2", "adam,nan", 3, "adam", "age"),
        ("adam,2", "adam,1e300", 3, "adam", "age"),
        ("1.5,1", "1.5,1e300", 3, "adam", "y"),
        ("1.5,1", "1.5,one", 3, "adam", "y"),
        ("1.5,1", "1.5,", 3, "adam", "y"),
        ("adam,2", ",2", 3, None, "user"),
        ("adam,2", '"ad\nam",2', 3, "ad\nam", "user"),
        ("adam,2", "adam,2,2", 3, None, None),
        ("adam,2", "ad\udce9m,2", 3, None, None),
        ("test", "tset", 4, "zoe", "part"),
        (",height", ",age", None, None, None),
        ("test", "train", None, None, None),
    ],
)
def test_invalid_cell_is_reported_with_row_client_and_column(
    places, old: str, new: str, line: int | None, client: str | None, column: str | None
) -> None:
    path = places.source / "t.csv"
    path.write_bytes(TABLE.replace(old, new).encode(errors="surrogateescape"))
    error = rejected_import("own", path, places.to, columns=COLUMNS)
    assert (error.path, error.line, error.client, error.column) == (path, line, client, column)
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
    assert (error.line, error.column) == (3, "y")


@pytest.mark.parametrize(
    ("changes", "line", "column"),
    [
        ({"x": [1.0, None]}, 2, "x"),
        ({"x": [1.0, float("nan")]}, 2, "x"),
        ({"x": [1.0, 1e39]}, 2, "x"),
        ({"y": [0, 2**60]}, 2, "y"),
        ({"y": ["cat", None]}, 2, "y"),
        ({"c": ["a", None]}, 2, "c"),
        ({"x": [[1.0], [2.0]]}, None, "x"),
    ],
)
def test_invalid_parquet_cell_is_reported(
    places, changes: dict[str, Any], line: int | None, column: str
) -> None:
    columns = {"c": ["a", "a"], "x": [1.0, 2.0], "y": [0, 1]} | changes
    path = write_parquet(places.source / "t.parquet", columns)
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
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
    assert (caught.value.kind, caught.value.name) == ("column", "user")
    assert "did you mean 'usr'" in str(caught.value) and "t.csv" in str(caught.value)


# -- values that would change


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "first", "second"),
    [("c", "n", "n "), ("c", "n", " n"), ("y", "cat", " cat"), ("kind", "red", "red "), ("c", "a", "nan")],
)
def test_texts_that_would_become_one_or_a_missing_value_are_rejected(
    places, format: str, column: str, first: str, second: str
) -> None:
    cells = {"c": ["a", "b"], "x": [1, 2], "kind": ["red", "blue"], "y": ["cat", "dog"]}
    cells[column] = [first, second]
    path = places.source / f"t.{format}"
    if format == "parquet":
        write_parquet(path, cells)
    else:
        path.write_text(
            "\n".join(",".join(map(str, row)) for row in [cells, *zip(*cells.values(), strict=True)]) + "\n"
        )
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y", categories="codes"))
    assert (error.path, error.line, error.column) == (path, 2 if format == "parquet" else 3, column)


def test_missing_parquet_id_is_not_a_client_called_nan(places) -> None:
    columns = {"c": pa.array([1.0, float("nan")]), "x": [1.0, 2.0], "y": [0, 1]}
    path = write_parquet(places.source / "t.parquet", columns)
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert (error.line, error.column) == (2, "c")


ROUNDED = {
    "CSV": "16777217",
    "CSV with spaces": " -16777217 ",
    "CSV beyond double precision": str(2**53 + 1),
    "Parquet int64": pa.array([16777217]),
    "Parquet beyond double precision": pa.array([2**60]),
    "Parquet uint64": pa.array([2**64 - 1], pa.uint64()),
}


def write_cell(directory: Path, cell: Any, column: str = "x") -> Path:
    """Write a table whose last row has `cell`."""
    if isinstance(cell, str):
        other = {"x": "y", "y": "x"}[column]
        path = directory / "t.csv"
        path.write_text(f"c,{column},{other}\na,0.5,1\na,{cell},1\n")
        return path
    first = pa.array([1], cell.type)
    cells = {column: pa.concat_arrays([first, cell]), "xy".replace(column, ""): [1, 1]}
    return write_parquet(directory / "t.parquet", {"c": ["a", "a"], **cells})


@pytest.mark.parametrize("cell", ROUNDED.values(), ids=ROUNDED)
def test_integer_feature_that_single_precision_would_round_is_rejected(places, cell: Any) -> None:
    """2^24 + 1 would be stored as 2^24."""
    path = write_cell(places.source, cell)
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert (error.path, error.column, error.client) == (path, "x", "a")
    assert error.line == (3 if path.suffix == ".csv" else 2)


@pytest.mark.parametrize("cell", ["16777216", "33554432", "16777217.0", "1e9", pa.array([16777217.0])])
def test_other_large_feature_is_accepted(tmp_path: Path, cell: Any) -> None:
    """An integer that single precision holds, or a number that is written as a fraction."""
    path = write_cell(tmp_path, cell)
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", test_share=0.5))
    stored = [store.split(name).columns(0)["features"][0, 0] for name in ("train", "test")]
    expected = np.float32(cell if isinstance(cell, str) else cell[0].as_py())
    assert expected in stored


def test_integer_among_fractional_labels_is_not_rounded(places) -> None:
    path = write_cell(places.source, "16777217", "y")
    error = rejected_import("own", path, places.to, columns=TableColumns("c", "y"))
    assert (error.line, error.column) == (3, "y")


def test_large_integer_labels_are_exact(tmp_path: Path) -> None:
    path = write_cell(tmp_path, pa.array([16777217]), "y")
    store = import_table(path, tmp_path / "out", TableColumns("c", "y", test_share=0.5))
    labels = [store.split(name).columns(0)["label"][0] for name in ("train", "test")]
    assert sorted(labels) == [1, 16777217]
