"""Importing: every public format gives the same store, and repeated imports are recognised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import publicfiles as files
import pytest

from fedopt.data.importing import encode
from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.store import Ragged, Store
from fedopt.errors import DataError, UnknownName

Make = Callable[[Path], Path]


def import_store(name: str, path: Path, to: Path, **options: Any) -> Store:
    return import_dataset(name, [path], to, ImportOptions(**options)).store


def rows(column: Any) -> list[Any]:
    return [row.tolist() for row in column.rows()] if isinstance(column, Ragged) else column.tolist()


EMNIST = [
    files.hdf5_directory,
    files.hdf5_file,
    files.tar_bz2,
    files.directory_of_archives,
    files.zip_file,
    files.sqlite_all,
    files.sqlite_lzma,
    files.sqlite_xz,
    files.leaf_directory,
]


@pytest.mark.parametrize("make", EMNIST, ids=lambda make: make.__name__)
def test_every_format_gives_the_same_emnist_store(tmp_path: Path, make: Make) -> None:
    (tmp_path / "in").mkdir()
    store = import_store("emnist", make(tmp_path / "in"), tmp_path / "out")
    for split, clients in files.emnist().items():
        stored = store.split(split)
        assert list(stored.ids) == sorted(clients)
        for at, client in enumerate(stored.ids):
            columns = stored.columns(at)
            expected = np.rint(clients[client]["pixels"].astype(np.float64) * 255)
            pixels = np.asarray(columns["pixels"])
            assert np.array_equal(pixels, expected) and pixels.dtype == np.uint8
            assert rows(columns["label"]) == clients[client]["label"].tolist()
    assert [path.name for path in tmp_path.iterdir() if path.name != "in"] == ["out"]


def test_pixels_with_more_than_256_levels_are_stored_as_float32(tmp_path: Path) -> None:
    data = files.emnist(levels=1000)
    files.write_hdf5(tmp_path, "fed_emnist", data)
    pixels = np.asarray(
        import_store("emnist", tmp_path, tmp_path / "out").split("train").columns(0)["pixels"]
    )
    assert pixels.dtype == np.float32 and np.array_equal(pixels, data["train"]["f1"]["pixels"])


@pytest.mark.parametrize(("digits", "label"), [(False, 61), (True, 9)])
def test_digits_option_selects_a_version_of_emnist(tmp_path: Path, digits: bool, label: int) -> None:
    def one(label: int) -> dict[str, Any]:
        return {"a": {"pixels": np.ones((1, 28, 28), np.float32), "label": np.array([label])}}

    both = {
        "all_train": one(61),
        "all_test": one(61),
        "digits_only_train": one(9),
        "digits_only_test": one(9),
    }
    path = files.write_sqlite(tmp_path / "emnist_all.sqlite", both)
    store = import_store("emnist", path, tmp_path / "out", digits=digits)
    assert rows(store.split("test").columns(0)["label"]) == [label]


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
def test_cifar100_in_tff_formats(tmp_path: Path, kind: str) -> None:
    data = files.cifar100()
    if kind == "hdf5":
        path = files.write_hdf5(tmp_path, "fed_cifar100", data)[0]
    else:
        path = files.write_sqlite(tmp_path / "cifar100.sqlite", data)
    columns = import_store("cifar100", path, tmp_path / "out").split("train").columns(1)
    for field in ("image", "label", "coarse_label"):
        assert np.array_equal(columns[field], data["train"]["1"][field])


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
def test_shakespeare_snippets_are_stored_byte_by_byte(tmp_path: Path, kind: str) -> None:
    data = files.shakespeare()
    if kind == "hdf5":
        path = files.write_hdf5(tmp_path, "shakespeare", data)[0]
    else:
        path = files.write_sqlite(tmp_path / "shakespeare.sqlite", data)
    train = import_store("shakespeare", path, tmp_path / "out").split("train")
    assert list(train.ids) == ["HAMLET_GHOST", "HAMLET_HAMLET"]
    for at, role in enumerate(train.ids):
        snippets = [bytes(row) for row in rows(train.columns(at)["snippets"])]
        assert snippets == data["train"][role]["snippets"]


@pytest.mark.parametrize("kind", ["hdf5", "sqlite", "archives"])
def test_stackoverflow_ids_follow_the_counts(tmp_path: Path, kind: str) -> None:
    data = files.stackoverflow()
    files.write_counts(tmp_path)
    if kind == "sqlite":
        path = files.write_sqlite(tmp_path / "stackoverflow.sqlite", data)
    else:
        members = files.write_hdf5(tmp_path, "stackoverflow", data)
        path = members[0]
    if kind == "archives":
        path = files.write_tar(tmp_path / "stackoverflow.tar.bz2", members)
        for name in ("stackoverflow.word_count", "stackoverflow.tag_count"):
            files.write_tar(tmp_path / f"{name}.tar.bz2", [tmp_path / name])
            members.append(tmp_path / name)
        for member in members:
            member.unlink()
    store = import_store("stackoverflow", path, tmp_path / "out")
    train = store.split("train")
    # words: a 1, to 2, list 3, how 4, sort 5, why 6, ? 7; tags: python 0, c++ 1, java 2, sorting 3
    assert {name: rows(column) for name, column in train.columns(0).items()} == {
        "tokens": [[6, 10001, 7]],
        "title": [[6, 7]],
        "tags": [[1]],
    }
    assert {name: rows(column) for name, column in train.columns(1).items()} == {
        "tokens": [[4, 2, 5, 1, 3], [1]],
        "title": [[5, 3], []],
        "tags": [[0, 3], [2]],
    }
    assert train.columns(0)["tokens"].values.dtype == np.uint16
    assert store.text("vocabulary.txt").split() == "a to list how sort why ?".split()
    assert store.text("tags.txt").split() == ["python", "c++", "java", "sorting"]
    assert list(store.split("heldout").ids) == ["00000005"]


def test_vocabulary_has_10000_words() -> None:
    words = [f"w{i}".encode() for i in range(1, 10_002)]
    number = encode.StackOverflow(words, [])
    assert number._word_ids([b"w1 w10000 w10001 w10002"]).values.tolist() == [1, 10000, 10001, 10001]


def test_repeated_import_is_recognised_and_other_files_need_replace(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    first = import_dataset("emnist", [tmp_path], tmp_path / "out")
    again = import_dataset("emnist", [tmp_path], tmp_path / "out")
    assert first.is_new and not again.is_new
    files.write_hdf5(tmp_path, "fed_emnist", files.emnist(levels=1000))
    with pytest.raises(DataError) as caught:
        import_dataset("emnist", [tmp_path], tmp_path / "out")
    assert caught.value.path == tmp_path / "out" and "--replace" in str(caught.value)
    assert import_dataset("emnist", [tmp_path], tmp_path / "out", ImportOptions(replace=True)).is_new


def test_damaged_store_is_imported_again(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    import_dataset("emnist", [tmp_path], tmp_path / "out")
    (tmp_path / "out" / "train" / "label.npy").unlink()
    assert import_dataset("emnist", [tmp_path], tmp_path / "out").is_new


def test_directory_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("...")
    with pytest.raises(DataError) as caught:
        import_dataset(
            "emnist", [files.hdf5_directory(tmp_path / "in")], tmp_path / "home", ImportOptions(replace=True)
        )
    assert caught.value.path == tmp_path / "home"
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_two_file_sets_in_one_directory_are_ambiguous(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    files.write_sqlite(tmp_path / "emnist.sqlite", files.emnist())
    with pytest.raises(DataError) as caught:
        import_dataset("emnist", [tmp_path], tmp_path / "out")
    assert caught.value.path == tmp_path
    assert "fed_emnist_train.h5" in str(caught.value) and "emnist.sqlite" in str(caught.value)
    assert import_dataset("emnist", [tmp_path / "fed_emnist_test.h5"], tmp_path / "out").is_new


def test_damaged_file_of_another_dataset_is_ignored(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    (tmp_path / "shakespeare_train.h5").write_bytes(b"\x89HDF\r\n\x1a\n and no more")
    assert import_dataset("emnist", [tmp_path], tmp_path / "out").is_new


def test_link_to_a_store_is_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        import_dataset("emnist", [files.hdf5_directory(tmp_path / "in")], tmp_path / "link")
    assert (tmp_path / "real" / "manifest.json").exists() and (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "link", "real"]


def test_unknown_dataset_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        import_dataset("emnst", [tmp_path], tmp_path / "out")
    assert (caught.value.kind, caught.value.name) == ("dataset", "emnst")
