"""The official CIFAR files: every image is assigned once, and invalid files are rejected."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import publicfiles as files
import pytest
from rejected import rejected_import

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.store import Store


def import_cifar(version: int, path: Path, to: Path, **options: Any) -> Store:
    return import_dataset(f"cifar{version}", [path], to, ImportOptions(**options)).store


@pytest.mark.parametrize("version", [10, 100])
@pytest.mark.parametrize("packed", [False, True])
def test_every_image_is_assigned_to_one_client(tmp_path: Path, version: int, packed: bool) -> None:
    folder = tmp_path / f"cifar-{version}-batches-bin"
    folder.mkdir()
    truth = files.write_cifar(folder, version, per_file=6)
    path = tmp_path / f"cifar-{version}-binary.tar.gz"
    if packed:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, folder.name)
    store = import_cifar(
        version, path if packed else folder, tmp_path / "out", train_clients=3, test_clients=2
    )
    for split, clients in (("train", 3), ("test", 2)):
        stored = store.split(split)
        assert list(stored.ids) == [str(i) for i in range(clients)]
        assert len(set(stored.sizes.tolist())) == 1
        seen = []
        for at in range(clients):
            columns = stored.columns(at)
            images = [image.tobytes() for image in np.asarray(columns["image"])]
            seen += list(zip(columns["label"].tolist(), images, strict=True))
            if version == 100:
                assert columns["coarse_label"].tolist() == [label // 5 for label in columns["label"].tolist()]
        assert sorted(seen) == sorted((label, image.tobytes()) for label, image in truth[split])


def test_partition_depends_on_the_seed(tmp_path: Path) -> None:
    files.write_cifar(tmp_path, 10, per_file=20)
    labels = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train = import_cifar(10, tmp_path, tmp_path / "out" / name, seed=seed, train_clients=5).split("train")
        labels.append([train.columns(at)["label"].tolist() for at in range(5)])
    assert labels[0] == labels[1] != labels[2]


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1], lambda data: b"\x0a" + data[1:], lambda data: b""],
    ids=["truncated", "label out of range", "empty"],
)
def test_invalid_file_is_rejected(places, change: Any) -> None:
    files.write_cifar(places.source, 10, per_file=3)
    path = places.source / "data_batch_2.bin"
    path.write_bytes(change(path.read_bytes()))
    assert rejected_import("cifar10", places.source, places.to).path == path


def test_missing_batch_is_named(places) -> None:
    files.write_cifar(places.source, 10, per_file=3)
    (places.source / "data_batch_2.bin").unlink()
    error = rejected_import("cifar10", places.source, places.to)
    assert error.path == places.source and "data_batch_2.bin not found" in str(error)


def test_pickled_files_are_never_opened(places) -> None:
    (places.source / "data_batch_1").write_bytes(b"\x80\x02}q\x00.")
    error = rejected_import("cifar10", places.source, places.to)
    assert error.path == places.source and "pickled files are never opened" in str(error)
