"""Reading a store: clients are slices of memory-mapped arrays, and damaged stores are rejected."""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from smallstores import remove_checksums, two_clients, write_small_store

from fedopt.data.store import Ragged, open_store, write_store
from fedopt.data.store.stored import manifest_checksum
from fedopt.errors import DataError, UnknownName


def test_client_is_read_as_written(tmp_path: Path) -> None:
    write_small_store(tmp_path / "s", texts={"words.txt": "où\n"}, notes={"seed": 3})
    store = open_store(tmp_path / "s")
    assert (store.name, store.text("words.txt"), store.manifest["notes"]) == ("own", "où\n", {"seed": 3})
    train = store.split("train")
    assert list(train.ids) == ["a", "b"] and train.sizes.tolist() == [2, 1]
    a, b = train.columns(0), train.columns(1)
    assert a["x"].tolist() == [[1, 2], [3, 4]] and a["x"].dtype == np.float32
    assert isinstance(a["t"], Ragged) and isinstance(b["t"], Ragged)
    assert [row.tolist() for row in a["t"].rows()] == [[5, 6, 7], []]
    assert b["t"].values.tolist() == [8] and b["t"].offsets.tolist() == [0, 1]


def test_client_ids_are_a_sequence(tmp_path: Path) -> None:
    names = [f"{i:03d}" for i in range(50)]
    write_store(tmp_path / "s", "own", [], {"train": ((n, {"x": np.zeros(1)}) for n in names)})
    ids = open_store(tmp_path / "s").split("train").ids
    assert len(ids) == 50 and ids[-1] == "049" and ids[3:5] == ["003", "004"] and "050" not in ids
    with pytest.raises(ValueError, match="not a client"):
        ids.index("zzz")
    with pytest.raises(IndexError):
        ids[50]


def test_opening_a_store_without_checksums_does_not_read_columns(tmp_path: Path) -> None:
    write_small_store(tmp_path / "s")
    remove_checksums(tmp_path / "s")
    column = tmp_path / "s" / "train" / "x.npy"
    column.write_bytes(b"?" * column.stat().st_size)
    split = open_store(tmp_path / "s").split("train")
    assert list(split.ids) == ["a", "b"]
    with pytest.raises(DataError) as caught:
        split.columns(0)
    assert caught.value.path == column and "import the data again" in str(caught.value)


def test_reading_50_of_40000_clients_is_fast(tmp_path: Path) -> None:
    n = 40_000
    clients = ((f"{i:06d}", {"x": np.full((1 + i % 3, 2), i, np.float32)}) for i in range(n))
    write_store(tmp_path / "s", "own", [], {"train": clients})
    start = time.perf_counter()
    split = open_store(tmp_path / "s").split("train")
    for at in np.random.default_rng(0).choice(n, 50, replace=False).tolist():
        assert split.columns(at)["x"][0, 0] == int(split.ids[at]) == at
    assert time.perf_counter() - start < 1


def test_pickled_split_is_small_and_opens_its_own_arrays(tmp_path: Path) -> None:
    write_small_store(tmp_path / "s")
    split = open_store(tmp_path / "s").split("train")
    split.columns(0)
    copy = pickle.loads(pickle.dumps(split))
    assert len(pickle.dumps(split)) < 1000
    assert copy.columns(1)["x"].tolist() == [[9, 9]] and list(pickle.loads(pickle.dumps(split.ids))) == [
        "a",
        "b",
    ]


def damage_truncate(store: Path) -> None:
    with open(store / "train" / "t.values.npy", "r+b") as file:
        file.truncate(100)


def damage_remove(store: Path) -> None:
    (store / "test" / "offsets.npy").unlink()


def damage_manifest(store: Path) -> None:
    (store / "manifest.json").write_text('{"format": 1, "na')


def damage_other_json(store: Path) -> None:
    (store / "manifest.json").write_text("[]")


def damage_version(store: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (damage_truncate, "train/t.values.npy"),
        (damage_remove, "test/offsets.npy"),
        (damage_manifest, "manifest.json"),
        (damage_other_json, "manifest.json"),
        (damage_version, ""),
    ],
)
def test_damaged_store_is_rejected(tmp_path: Path, damage: Any, file: str) -> None:
    write_small_store(tmp_path / "s")
    damage(tmp_path / "s")
    with pytest.raises(DataError) as caught:
        open_store(tmp_path / "s")
    assert caught.value.path == tmp_path / "s" / file


def test_directory_without_a_store_names_the_import_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fedopt data import") as caught:
        open_store(tmp_path)
    assert caught.value.path == tmp_path


def test_pickled_arrays_are_not_loaded(tmp_path: Path) -> None:
    write_small_store(tmp_path / "s")
    np.save(tmp_path / "s" / "train" / "x.npy", np.array([{"evil": 1}], dtype=object), allow_pickle=True)
    files = json.loads((tmp_path / "s" / "manifest.json").read_text())["files"]
    size = (tmp_path / "s" / "train" / "x.npy").stat().st_size
    remove_checksums(tmp_path / "s", files=files | {"train/x.npy": size})
    with pytest.raises(DataError) as caught:
        open_store(tmp_path / "s").split("train").columns(0)
    assert caught.value.path == tmp_path / "s" / "train" / "x.npy"


@pytest.mark.parametrize("kind", ["split", "text", "column"])
def test_unknown_name_is_rejected(tmp_path: Path, kind: str) -> None:
    write_small_store(tmp_path / "s")
    store = open_store(tmp_path / "s")
    with pytest.raises(UnknownName) as caught:
        {"split": store.split, "text": store.text, "column": store.split("train").column}[kind]("tset")
    assert caught.value.name == "tset" and caught.value.kind.startswith(kind)


def test_checksum_depends_on_the_files_and_not_on_the_version_of_fedopt(tmp_path: Path) -> None:
    """The same files that a newer version imports belong to the same comparison."""
    file = tmp_path / "manifest.json"
    checksums = []
    for version, name in [("0.1.0", "a"), ("0.3.0", "a"), ("0.3.0", "b")]:
        write_store(tmp_path, name, [], {"train": two_clients()})
        remove_checksums(tmp_path, fedopt=version)
        checksums.append(manifest_checksum(tmp_path))
    assert checksums[0] == checksums[1] != checksums[2]
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"fedopt": "0.1.0"}, indent=1))
    # Runs of 0.1.0 and 0.2.0 have recorded the checksum of the whole file, which had no checksums.
    recorded = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert manifest_checksum(tmp_path) == recorded
    write_store(tmp_path, "b", [], {"train": two_clients()})
    assert b'"sha256"' in file.read_bytes() and manifest_checksum(tmp_path) == recorded
