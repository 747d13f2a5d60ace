"""Features of a table: categories, missing values, types, index columns, and drawn test splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from rejected import rejected_import

import fedopt
from fedopt.data.importing.datasets import ImportOptions, table_columns
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import table_columns as encoders
from fedopt.data.readers.base import TableColumns
from fedopt.data.store import Store
from fedopt.errors import DataError, UnknownName, UserError

FRAME = pd.DataFrame(
    {
        "user": ["a", "a", "b", "b", "b"],
        "age": [1.0, np.nan, 3.0, 8.0, 100.0],
        "city": ["Oslo", "Bonn", None, "Oslo", "Rome"],
        "smokes": [True, False, True, True, False],
        "y": ["yes", "no", "no", "yes", "no"],
        "part": ["train", "train", "train", "train", "test"],
    }
)


def write(frame: pd.DataFrame, path: Path, **options: Any) -> Path:
    frame.to_csv(path, **options) if path.suffix == ".csv" else frame.to_parquet(path, **options)
    return path


def import_frame(frame: pd.DataFrame, path: Path, index: bool = False, **options: Any) -> Store:
    write(frame, path, index=index)
    columns = TableColumns("user", "y", **{"split": "part", **options})
    return import_dataset("own", [path], path.parent / "out", ImportOptions(columns=columns)).store


def features(store: Store, split: str) -> list[list[float]]:
    return np.asarray(store.split(split).column("features")).tolist()


@pytest.fixture(params=["csv", "parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"table.{request.param}"


def test_text_features_become_one_hot_columns(path: Path) -> None:
    """The columns are age, city = (missing), Bonn, Oslo, Rome, and smokes. The mean of 1, 3 and 8 is 4."""
    store = import_frame(FRAME, path, categories="one-hot", missing="mean")
    assert features(store, "train") == [
        [1, 0, 0, 1, 0, 1],
        [4, 0, 1, 0, 0, 0],
        [3, 1, 0, 0, 0, 1],
        [8, 0, 0, 1, 0, 1],
    ]
    assert features(store, "test") == [[100, 0, 0, 0, 1, 0]]
    notes = store.manifest["notes"]
    assert notes["features"] == ["age", "city=", "city=Bonn", "city=Oslo", "city=Rome", "smokes"]
    assert notes["categories"] == {"city": ["", "Bonn", "Oslo", "Rome"]}
    assert notes["missing"] == {"replaced by": {"age": 4.0}}
    assert notes["labels"] == {"no": 0, "yes": 1}


def test_text_features_become_codes_in_sorted_order(path: Path) -> None:
    store = import_frame(FRAME, path, categories="codes", missing="zero")
    assert features(store, "train") == [[1, 2, 1], [0, 1, 0], [3, 0, 1], [8, 2, 1]]
    assert features(store, "test") == [[100, 3, 0]]
    assert store.manifest["notes"]["features"] == ["age", "city", "smokes"]
    assert store.manifest["notes"]["categories"] == {"city": ["", "Bonn", "Oslo", "Rome"]}


def test_rows_with_missing_values_are_left_out(path: Path) -> None:
    frame = FRAME.assign(y=["yes", "no", "no", None, "no"])
    store = import_frame(frame, path, categories="codes", missing="drop")
    assert features(store, "train") == [[1, 0, 1]]
    assert list(store.split("train").ids) == ["a"] and list(store.split("test").ids) == ["b"]
    assert store.manifest["notes"]["missing"] == "3 rows with missing values left out"


def test_missing_label_is_never_replaced(places) -> None:
    path = write(FRAME.assign(y=[1, 2, 3, np.nan, 5]), places.source / "t.csv", index=False)
    columns = TableColumns("user", "y", ("smokes",), split="part", missing="zero")
    error = rejected_import("own", path, places.to, columns=columns)
    assert (error.line, error.column, error.client) == (5, "y", "b")


@pytest.mark.parametrize("word", ["NA", "n/a", "NaN", "null", "None", "#N/A", "<NA>", ""])
def test_words_for_missing_values_in_csv_files(tmp_path: Path, word: str) -> None:
    (tmp_path / "t.csv").write_text(f"user,x,y,part\na,{word},0,train\na,5,1,train\na,1,1,test\n")
    columns = TableColumns("user", "y", split="part", missing="mean")
    store = import_dataset(
        "own", [tmp_path / "t.csv"], tmp_path / "out", ImportOptions(columns=columns)
    ).store
    assert features(store, "train") == [[5], [5]]


@pytest.mark.parametrize(
    ("options", "line", "column"),
    [
        ({}, 3, "age"),  # a missing value
        ({"missing": "zero"}, 2, "city"),  # text
        ({"categories": "one-hot"}, 3, "age"),
        ({"missing": "zero", "categories": "codes", "types": {"city": "number"}}, 2, "city"),
    ],
)
def test_invalid_feature_is_reported_with_its_row(
    places, options: dict[str, Any], line: int, column: str
) -> None:
    path = write(FRAME, places.source / "t.csv", index=False)
    error = rejected_import(
        "own", path, places.to, columns=TableColumns("user", "y", split="part", **options)
    )
    assert (error.line, error.column) == (line, column)


def test_infinite_values_are_never_missing_values(places) -> None:
    path = write(FRAME.assign(age=[1, 2, np.inf, 4, 5]), places.source / "t.csv", index=False)
    columns = TableColumns("user", "y", ("age",), split="part", missing="mean")
    error = rejected_import("own", path, places.to, columns=columns)
    assert (error.line, error.column) == (4, "age")


def test_row_numbers_in_errors_count_rows_that_were_left_out(places) -> None:
    path = write(FRAME.assign(age=[np.nan, 2, np.inf, 4, 5]), places.source / "t.csv", index=False)
    columns = TableColumns("user", "y", ("age",), split="part", missing="drop")
    error = rejected_import("own", path, places.to, columns=columns)
    assert (error.line, error.column) == (4, "age")


def test_mean_of_a_column_without_training_values_is_refused(places) -> None:
    path = write(FRAME.assign(age=[np.nan] * 4 + [5]), places.source / "t.csv", index=False)
    columns = TableColumns("user", "y", ("age",), split="part", missing="mean")
    assert rejected_import("own", path, places.to, columns=columns).column == "age"


def test_numbers_may_be_declared_as_categories(path: Path) -> None:
    frame = FRAME.assign(zip=[30, 4, 30, 30, 200])
    store = import_frame(frame, path, features=("zip",), types={"zip": "category"})
    assert store.manifest["notes"]["categories"] == {"zip": ["200", "30", "4"]}
    assert features(store, "train") == [[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]]


def test_types_of_columns_that_are_not_features_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        import_frame(FRAME, tmp_path / "t.csv", features=("age",), types={"cty": "category"})


def test_too_many_categories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "MAX_ONE_HOT", 3)
    with pytest.raises(DataError) as error:
        import_frame(FRAME, tmp_path / "t.csv", categories="one-hot", missing="zero")
    assert error.value.column == "city"


@pytest.mark.parametrize("twice", [False, True])
def test_index_that_pandas_writes_is_not_a_feature(path: Path, twice: bool) -> None:
    frame = FRAME[["user", "age", "y", "part"]]
    frame = frame.iloc[[0, 2, 3, 4]]  # an index with gaps, which Parquet files store as a column
    if twice:
        frame.to_csv(path.with_suffix(".once.csv"))
        frame = pd.read_csv(path.with_suffix(".once.csv"))
        path.with_suffix(".once.csv").unlink()
        assert frame.columns[0] == "Unnamed: 0"
    store = import_frame(frame, path, index=True)
    assert store.manifest["notes"]["features"] == ["age"]
    assert features(store, "train") == [[1], [3], [8]]


def many_clients(clients: int = 10) -> pd.DataFrame:
    users = np.repeat([f"u{number}" for number in range(clients)], 3)
    return pd.DataFrame({"user": users, "x": np.arange(len(users)), "y": 0})


@pytest.mark.parametrize(("wanted", "count"), [(0.3, 3), (0.01, 1), (4.0, 4)])
def test_test_split_of_whole_clients(tmp_path: Path, wanted: float, count: int) -> None:
    splits = []
    for seed in (1, 1, 2):
        options = {"split": None, "test_clients": wanted, "seed": seed}
        folder = tmp_path / f"{len(splits)}"
        folder.mkdir()
        store = import_frame(many_clients(), folder / "t.csv", **options)
        train, test = (list(store.split(name).ids) for name in ("train", "test"))
        assert len(test) == count and sorted(train + test) == [f"u{number}" for number in range(10)]
        assert set(store.split("test").sizes.tolist()) == {3}
        splits.append(test)
    assert splits[0] == splits[1]
    assert f"{count} of 10 clients" in store.manifest["notes"]["test"]


def test_seed_selects_the_test_clients(tmp_path: Path) -> None:
    chosen = set()
    for seed in range(8):
        (tmp_path / str(seed)).mkdir()
        store = import_frame(
            many_clients(), tmp_path / str(seed) / "t.csv", split=None, test_clients=1, seed=seed
        )
        chosen.add(store.split("test").ids[0])
    assert len(chosen) > 2


def test_all_clients_cannot_be_test_clients(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        import_frame(many_clients(3), tmp_path / "t.csv", split=None, test_clients=3.0)


def test_test_clients_of_files_with_named_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        import_frame(many_clients(), tmp_path / "train.csv", split=None, test_clients=0.5)


def test_other_options_are_another_import(tmp_path: Path) -> None:
    import_frame(FRAME, tmp_path / "t.csv", categories="codes", missing="zero")
    with pytest.raises(DataError):
        import_frame(FRAME, tmp_path / "t.csv", categories="codes", missing="mean")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"categories": "onehot"}, UnknownName),
        ({"missing": "median"}, UnknownName),
        ({"types": "zip"}, UserError),
        ({"types": "zip=text"}, UserError),
        ({"test_share": 1.0}, UserError),
        ({"test_clients": 0.0}, UserError),
        ({"test_clients": 2.5}, UserError),
        ({"test_share": 0.2, "test_clients": 0.2}, UserError),
        ({"split": "part", "test_clients": 0.2}, UserError),
        ({"name": "emnist", "categories": "codes"}, UserError),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        table_columns(**{"name": "own", "client": "c", "label": "y", **options})


def test_imported_table_with_text_is_trained_on(tmp_path: Path) -> None:
    """The label is the city, so a linear model on the one-hot columns learns it."""
    rng = np.random.default_rng(0)
    cities = rng.choice(["Bonn", "Oslo", "Rome"], 120)
    frame = pd.DataFrame({"user": rng.choice(list("abcd"), 120), "city": cities, "y": np.char.lower(cities)})
    store = import_frame(frame, tmp_path / "t.csv", split=None, categories="one-hot", test_clients=0.25)
    task = fedopt.own_task(lambda: torch.nn.Linear(3, 3), F.cross_entropy, tmp_path / "out")
    result = fedopt.run(task, rounds=10, config={"client.lr": 1.0, "clients_per_round": 3})
    assert store.manifest["notes"]["labels"] == {"bonn": 0, "oslo": 1, "rome": 2}
    assert result.test[-1]["accuracy"] == 1.0


def test_category_with_a_line_break_in_a_csv_file_is_rejected(places) -> None:
    """Two quotation marks that are not closed would join four rows to one."""
    rows = ['c1,"foo,1', "c2,a,0", "c2,b,1", 'c3,"bar,0', "c1,a,0", "c2,b,0"]
    (places.source / "t.csv").write_text("client,kind,label\n" + "\n".join(rows) + "\n")
    columns = TableColumns("client", "label", categories="codes")
    error = rejected_import("own", places.source, places.to, columns=columns)
    assert (error.line, error.column) == (2, "kind") and "quotation mark" in str(error)
