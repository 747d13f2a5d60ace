"""Tables that hold the same rows twice, index columns, and repeated imports with other options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rejected import rejected_import

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import ImportResult, import_dataset
from fedopt.data.readers.base import TableColumns
from fedopt.errors import DataError

COLUMNS = TableColumns("client", "label")
FRAME = pd.DataFrame(
    {"client": ["c0", "c1"] * 5, "label": [0, 1] * 5, "a": np.arange(10) / 7, "part": ["train", "test"] * 5}
)
TABLE = FRAME[["client", "label", "a"]]


def import_table(path: Path, to: Path, columns: TableColumns = COLUMNS, **options: bool) -> ImportResult:
    return import_dataset("own", [path], to, ImportOptions(columns=columns, **options))


@pytest.mark.parametrize(
    ("first", "second"), [("t.csv", "t.parquet"), ("t.csv", "t.tsv"), ("csv/t.csv", "parquet/t.parquet")]
)
def test_one_table_in_two_formats_is_not_merged(first: str, second: str, places) -> None:
    for name in (first, second):
        file = places.source / name
        file.parent.mkdir(exist_ok=True)
        if file.suffix == ".parquet":
            TABLE.to_parquet(file)
        else:
            TABLE.to_csv(file, index=False, sep="\t" if file.suffix == ".tsv" else ",")
    error = rejected_import("own", places.source, places.to, columns=COLUMNS)
    assert error.path == places.source / second and "t.csv" in str(error)


def test_train_and_test_may_have_different_formats(places) -> None:
    TABLE.to_csv(places.source / "train.csv", index=False)
    TABLE.to_parquet(places.source / "test.parquet")
    splits = import_table(places.source, places.to / "s").store.manifest["splits"]
    assert (splits["train"]["examples"], splits["test"]["examples"]) == (10, 10)


def test_copy_of_a_table_is_rejected(places) -> None:
    for name in ("t.csv", "t (copy).csv"):
        TABLE.to_csv(places.source / name, index=False)
    error = rejected_import("own", places.source, places.to, columns=COLUMNS)
    assert error.path is not None and "is a copy of" in str(error)


def write_twice(path: Path) -> None:
    """Pandas names the second index of a file "Unnamed: 0.1" or "Unnamed: 0"."""
    TABLE.to_csv(path)
    pd.read_csv(path).rename(columns={"Unnamed: 0": "Unnamed: 0.1"}).to_csv(path)


INDEXES = {
    "without a name": lambda d: TABLE.to_csv(d / "t.csv"),
    "twice": lambda d: write_twice(d / "t.csv"),
    "of a Parquet file": lambda d: TABLE.iloc[[3, 1, 2, 0, 4]].to_parquet(d / "t.parquet"),
    "with a name": lambda d: TABLE.set_index(pd.Index([7.5] * 10, name="row")).to_parquet(d / "t.parquet"),
}


@pytest.mark.parametrize("write", INDEXES.values(), ids=INDEXES)
def test_index_of_pandas_is_not_a_feature(places, write) -> None:
    write(places.source)
    assert import_table(places.source, places.to / "s").store.manifest["notes"]["features"] == ["a"]


@pytest.mark.parametrize("first", [0, 1])
def test_column_that_numbers_the_rows_is_reported(places, first: int) -> None:
    frame = TABLE.assign(index=np.arange(first, first + 10), b=np.arange(10)[::-1])
    for part, rows in (("train", slice(0, 6)), ("test", slice(0, 4))):
        frame.iloc[rows].to_csv(places.source / f"{part}.csv", index=False)
    assert import_table(places.source, places.to / "s").store.manifest["notes"]["row_numbers"] == ["index"]


def test_import_with_another_split_column_is_not_the_same_import(places) -> None:
    FRAME.to_csv(places.source / "t.csv", index=False)
    by_share = TableColumns("client", "label", ("a",))
    by_column = TableColumns("client", "label", ("a",), split="part")
    target = places.to / "s"
    assert import_table(places.source, target, by_share).is_new
    assert not import_table(places.source, target, by_share).is_new
    with pytest.raises(DataError, match="the same files imported with other options") as caught:
        import_table(places.source, target, by_column)
    assert caught.value.path == target
    assert "(--split-column unset, not part)" in str(caught.value)
    replaced = import_table(places.source, target, by_column, replace=True)
    assert replaced.is_new and replaced.store.manifest["splits"]["test"]["examples"] == 5
    assert not import_table(places.source, target, by_column).is_new


def test_header_of_131072_characters_is_read(places) -> None:
    name = "x" * 131_072
    TABLE.rename(columns={"a": name}).to_csv(places.source / "t.csv", index=False)
    assert import_table(places.source, places.to / "s").store.manifest["notes"]["features"] == [name]


HEADERS = {
    "line break in a name": (b'client,label,"a\nb"\n', "a\nb"),
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
    notes = import_table(path, places.to / "s").store.manifest["notes"]
    assert notes["features"] == [name]


def test_long_texts_of_many_rows_are_read_in_parts(places) -> None:
    """The texts of a batch are 12 MB, which is more than is decoded at once."""
    texts = ["a" * 1500, "b" * 1500]
    frame = pd.DataFrame({"client": ["c0", "c1"] * 4096, "label": texts * 4096, "a": np.arange(8192.0)})
    frame.to_parquet(places.source / "t.parquet")
    store = import_table(places.source, places.to / "s").store
    assert store.manifest["notes"]["labels"] == {texts[0]: 0, texts[1]: 1}
    for client in range(2):
        columns = store.split("train").columns(client)
        assert (columns["label"] == client).all() and (columns["features"][:, 0] % 2 == client).all()


NOT_UTF8 = {
    "Latin-1": ("client,label,a\nMüller,0,1\n".encode("latin-1"), "save it as UTF-8"),
    "UTF-16": ("client,label,a\nc,0,1\n".encode("utf-16"), "UTF-8 text"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize(("content", "message"), NOT_UTF8.values(), ids=NOT_UTF8)
def test_file_that_is_not_utf8_is_not_called_damaged(places, content: bytes, message: str) -> None:
    (places.source / "t.csv").write_bytes(content)
    error = rejected_import("own", places.source / "t.csv", places.to, columns=COLUMNS)
    assert error.path == places.source / "t.csv"
    assert message in str(error) and "damaged" not in str(error) and "train" not in str(error)
