"""Imports into a directory that already holds a store."""

from __future__ import annotations

import shutil
from pathlib import Path

import publicfiles as files
import pytest
from smallstores import remove_checksums

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import ImportResult, import_dataset
from fedopt.data.store import open_store
from fedopt.data.store.stored import manifest_checksum
from fedopt.errors import DataError

REPLACE = ImportOptions(replace=True)


def import_shakespeare(path: Path, to: Path, options: ImportOptions | None = None) -> ImportResult:
    return import_dataset("shakespeare", [path], to, options)


@pytest.fixture
def store(places) -> Path:
    files.write_hdf5(places.source, "shakespeare", files.shakespeare())
    import_shakespeare(places.source, places.to / "store")
    return places.to / "store"


def test_same_files_by_another_path_are_recognised(places, store: Path) -> None:
    copies = places.source / "copies"
    copies.mkdir()
    for path in places.source.glob("*.h5"):
        shutil.copy(path, copies / path.name.replace("shakespeare", "renamed"))
    for path in (copies, copies / "renamed_test.h5", places.source / "shakespeare_train.h5"):
        assert not import_shakespeare(path, store).is_new


def test_import_of_the_same_files_adds_checksums(places, store: Path) -> None:
    """A store of 0.2.0 has none. Runs on it stay runs on the same data."""
    written, recorded = (store / "manifest.json").read_bytes(), manifest_checksum(store)
    remove_checksums(store)
    assert import_shakespeare(places.source, store).is_new
    assert (store / "manifest.json").read_bytes() == written and manifest_checksum(store) == recorded


def test_other_files_are_rejected_without_replace(places, store: Path) -> None:
    data = files.shakespeare()
    data["test"]["HAMLET_GHOST"]["snippets"] = [b"Adieu."]
    files.write_hdf5(places.source, "shakespeare", data)
    with pytest.raises(DataError, match="from other files; add --replace") as caught:
        import_shakespeare(places.source, store)
    assert caught.value.path == store


def change_source(places) -> None:
    data = files.shakespeare()
    data["test"]["HAMLET_GHOST"]["snippets"] = [b"Adieu."]
    files.write_hdf5(places.source, "shakespeare", data)


@pytest.mark.parametrize("damaged", [False, True])
def test_replace_keeps_files_that_no_import_has_written(places, store: Path, damaged: bool) -> None:
    own = {"notes.txt": "mine", "train/figure.png": "picture", "models/deep/x.npy": "weights"}
    for name, text in own.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(text)
    (store / "link").symlink_to("/etc/hostname")
    if damaged:
        (store / "manifest.json").write_text("{")
    before = set(open_store(store).manifest["files"]) if not damaged else set()
    change_source(places)
    assert import_shakespeare(places.source, store, REPLACE).is_new
    assert {name: (store / name).read_text() for name in own} == own
    assert (store / "link").readlink() == Path("/etc/hostname")
    written = set(open_store(store).manifest["files"])
    assert before <= written or damaged
    present = {str(path.relative_to(store)) for path in store.rglob("*") if not path.is_dir()}
    assert present == written | set(own) | {"manifest.json", "link"}
    assert [path.name for path in places.to.iterdir()] == ["store"]


def test_own_file_with_the_name_of_a_new_file_is_not_overwritten(places) -> None:
    target = places.to / "store"
    files.write_hdf5(places.source, "shakespeare", files.shakespeare())
    import_shakespeare(places.source, target)
    (target / "train" / "pixels.npy").write_text("mine")
    emnist = places.source / "emnist"
    emnist.mkdir()
    files.hdf5_directory(emnist)
    with pytest.raises(DataError, match="move it away") as caught:
        import_dataset("emnist", [emnist], target, REPLACE)
    assert caught.value.path == target / "train" / "pixels.npy"
    assert open_store(target).name == "shakespeare"
    assert (target / "train" / "pixels.npy").read_text() == "mine"


@pytest.mark.parametrize("file", ["manifest.json", "train/ids.values.npy"])
def test_other_damaged_data_are_rejected_without_replace(places, store: Path, file: str) -> None:
    (store / file).write_text("{")
    emnist = places.source / "emnist"
    emnist.mkdir()
    files.hdf5_directory(emnist)
    with pytest.raises(DataError, match="add --replace") as caught:
        import_dataset("emnist", [emnist], store)
    assert caught.value.path == store and (store / file).read_text() == "{"
    assert import_dataset("emnist", [emnist], store, REPLACE).is_new
