"""Layouts of files that users have: compressed pairs, directories per split, archives of a directory."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import publicfiles as files
import pytest
from rejected import rejected_import

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.errors import DataError

SIZES = {"train": (3, 6), "test": (2, 3)}


def check_emnist(path: Path, to: Path, **options: bool) -> None:
    splits = import_dataset("emnist", [path], to / "store", ImportOptions(**options)).store.manifest["splits"]
    assert {name: (split["clients"], split["examples"]) for name, split in splits.items()} == SIZES


def tar_of_a_directory(d: Path) -> Path:
    """Its first member is the directory itself, `./`."""
    inner = d / "inner"
    inner.mkdir()
    files.hdf5_directory(inner)
    subprocess.run(["tar", "czf", d / "emnist.tgz", "-C", inner, "."], check=True)
    return d / "emnist.tgz"


def compressed_pair(d: Path) -> Path:
    for path in files.write_hdf5(d, "fed_emnist", files.emnist()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return d


def directory_per_split(d: Path) -> Path:
    for path in files.write_hdf5(d, "fed_emnist", files.emnist()):
        folder = d / path.stem.removeprefix("fed_emnist_")
        folder.mkdir()
        path.rename(folder / "data.h5")
    return d


def archive_of_directories(d: Path) -> Path:
    inner = d / "inner"
    inner.mkdir()
    directory_per_split(inner)
    subprocess.run(["tar", "cf", d / "emnist.tar", "-C", inner, "train", "test"], check=True)
    return d / "emnist.tar"


def unreadable_neighbour(d: Path) -> Path:
    """Reading the memory of a process from its first byte fails, also for the superuser."""
    files.hdf5_directory(d)
    (d / "notes.txt").symlink_to("/proc/self/mem")
    return d


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "archive of a directory": tar_of_a_directory,
    "directory of compressed files": compressed_pair,
    "one of two compressed files": lambda d: compressed_pair(d) / "fed_emnist_train.h5.gz",
    "other one of two compressed files": lambda d: compressed_pair(d) / "fed_emnist_test.h5.gz",
    "directory per split": directory_per_split,
    "file of a directory per split": lambda d: directory_per_split(d) / "train" / "data.h5",
    "archive of a directory per split": archive_of_directories,
    "unreadable file beside the data": unreadable_neighbour,
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_is_imported(places, make: Callable[[Path], Path]) -> None:
    check_emnist(make(places.source), places.to)


def test_unreadable_file_of_the_dataset_is_reported(places) -> None:
    files.hdf5_directory(places.source)
    (places.source / "fed_emnist_test.h5").unlink()
    (places.source / "fed_emnist_test.h5").symlink_to("/proc/self/mem")
    error = rejected_import("emnist", places.source, places.to)
    assert error.path == places.source / "fed_emnist_test.h5" and "permissions" in str(error)


def test_two_files_of_one_split_are_rejected(places) -> None:
    files.hdf5_directory(places.source)
    (places.source / "fed_emnist_training.h5").write_bytes(
        (places.source / "fed_emnist_train.h5").read_bytes()
    )
    error = rejected_import("emnist", places.source, places.to)
    assert "fed_emnist_train.h5" in str(error) and "fed_emnist_training.h5" in str(error)


def test_named_pipe_is_rejected_without_waiting(places) -> None:
    os.mkfifo(places.source / "pipe.csv")
    error = rejected_import("emnist", places.source / "pipe.csv", places.to)
    assert error.path == places.source / "pipe.csv" and "not a regular file" in str(error)
    files.hdf5_directory(places.source)
    check_emnist(places.source, places.to)  # a pipe beside the data is ignored


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickled_file_is_not_opened(places, protocol: int) -> None:
    """The hint does not depend on the protocol. The file is not a complete pickle."""
    (places.source / "data_batch_1").write_bytes(bytes([0x80, protocol]) + b"\x95")
    error = rejected_import("cifar10", places.source, places.to)
    assert "pickled files are never opened" in str(error) and "cifar-*-binary.tar.gz" in str(error)


def with_an_empty_client(kind: str, d: Path) -> Path:
    data = files.emnist()
    data["train"]["f0"] = {"pixels": np.empty((0, 28, 28), np.float32), "label": np.empty(0, np.int32)}
    if kind == "hdf5":
        for split, clients in data.items():
            with h5py.File(d / f"fed_emnist_{split}.h5", "w") as file:
                for client, fields in clients.items():
                    for field, values in fields.items():
                        file[f"examples/{client}/{field}"] = values
        return d
    if kind == "sqlite":
        return files.write_sqlite(d / "emnist.sqlite", data)
    return files.write_femnist(d, data)


@pytest.mark.parametrize("kind", ["hdf5", "sqlite", "leaf"])
def test_clients_without_examples_are_skipped_on_request(places, kind: str) -> None:
    path = with_an_empty_client(kind, places.source)
    error = rejected_import("emnist", path, places.to)
    assert error.client == "f0" and "--skip-empty" in str(error)
    messages: list[str] = []
    options = ImportOptions(skip_empty=True)
    store = import_dataset("emnist", [path], places.to / "store", options, messages.append).store
    assert "left out 1 client without examples" in messages
    assert list(store.split("train").ids) == ["f1", "f10", "f2"]


@pytest.mark.parametrize("content", ["", "\n", "[1]", '{"users": [], "num_samples": [], "user_data": {}}'])
def test_empty_shard_among_valid_ones_is_rejected(places, content: str) -> None:
    files.leaf_directory(places.source)
    shard = places.source / "train" / "all_data_1_niid_0_keep_0_train_9.json"
    shard.write_text(content)
    assert rejected_import("emnist", places.source, places.to).path == shard


def test_deeply_nested_json_is_rejected(places) -> None:
    files.leaf_directory(places.source)
    path = next((places.source / "train").iterdir())
    path.write_text('{"users": ' + "[" * 200_000 + "]" * 200_000 + "}")
    error = rejected_import("emnist", places.source, places.to)
    assert error.path == path and "lists and objects in" in str(error)


@pytest.mark.parametrize("kind", ["hdf5", "sqlite", "leaf", "csv", "parquet", "zip"])
def test_path_that_is_not_utf8_is_imported(places, kind: str) -> None:
    folder = places.source / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    if kind in ("csv", "parquet"):
        import pandas as pd

        from fedopt.data.readers.base import TableColumns

        frame = pd.DataFrame({"who": ["a", "a", "b", "b"], "y": [0, 1, 0, 1], "x": [0.5, 1.5, 2.5, 3.5]})
        frame.to_csv(places.source / "t.csv", index=False)
        frame.to_parquet(places.source / "t.parquet")
        path = folder / os.fsdecode(f"caf.{kind}".encode() + b"\xe9")
        (places.source / f"t.{kind}").rename(path)
        options = ImportOptions(columns=TableColumns("who", "y"))
        assert import_dataset("own", [path], places.to / os.fsdecode(b"\xff"), options).is_new
        return
    make = {
        "hdf5": files.hdf5_directory,
        "sqlite": files.sqlite_all,
        "leaf": files.leaf_directory,
        "zip": files.zip_file,
    }[kind]
    check_emnist(make(folder), places.to / os.fsdecode(b"\xff"))


@pytest.mark.parametrize("name", [b"\xff\xfe", b"caf\xe9"])
def test_client_id_that_is_not_utf8_is_rejected(places, name: bytes) -> None:
    files.hdf5_directory(places.source)
    with h5py.File(places.source / "fed_emnist_train.h5", "r+") as file:
        file["examples"].move("f1", name)
    error = rejected_import("emnist", places.source, places.to)
    assert error.path == places.source / "fed_emnist_train.h5" and "not valid UTF-8" in str(error)


def test_missing_path_is_reported(places) -> None:
    with pytest.raises(DataError, match="does not exist") as caught:
        import_dataset("emnist", [places.source / "absent"], places.to / "s")
    assert caught.value.path == places.source / "absent"


RELATIVE = {
    "one of two files": (files.hdf5_directory, "fed_emnist_train.h5"),
    "one of two compressed files": (compressed_pair, "fed_emnist_test.h5.gz"),
    "file of a directory per split": (directory_per_split, "train/data.h5"),
}


@pytest.mark.parametrize(("make", "path"), RELATIVE.values(), ids=RELATIVE)
def test_relative_path_finds_the_other_split(
    places, make: Callable[[Path], Path], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(places.source)
    monkeypatch.chdir(places.source)
    check_emnist(Path(path), places.to)


def test_directory_that_cannot_be_read_is_reported(places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read every directory, so the error is raised by the test."""
    files.hdf5_directory(places.source)
    closed = places.source / "closed"
    closed.mkdir()
    scandir = os.scandir

    def deny(path: str | int) -> Any:
        if path == str(closed):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", deny)
    messages: list[str] = []
    assert import_dataset("emnist", [places.source], places.to / "store", log=messages.append).is_new
    assert messages == [f"left out {closed}, which cannot be read: Permission denied"]
