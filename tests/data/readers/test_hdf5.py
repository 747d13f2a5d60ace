"""TFF's HDF5 files: damaged or unsafe content is rejected with file and client."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import publicfiles as files
import pytest
from damagedfiles import Make, change_hdf5, scramble, truncate
from rejected import rejected_import


def external_link(d: Path) -> Path:
    files.write_hdf5(d, "fed_emnist", files.emnist())
    with h5py.File(d / "fed_emnist_train.h5", "r+") as file:
        file["examples/spy"] = h5py.ExternalLink("/etc/elsewhere.h5", "/x")
    return d


def external_field(d: Path) -> Path:
    files.write_hdf5(d, "fed_emnist", files.emnist())
    with h5py.File(d / "fed_emnist_train.h5", "r+") as file:
        del file["examples/f1/label"]
        file["examples/f1/label"] = h5py.ExternalLink("/etc/elsewhere.h5", "/x")
    return d


nan = np.full((3, 28, 28), np.nan, np.float32)
TRAIN, TEST = "fed_emnist_train.h5", "fed_emnist_test.h5"
CASES: dict[str, tuple[Make, str, str | None]] = {
    "label out of range": (change_hdf5("train", "f1", "label", [1, 62, 3]), TRAIN, "f1"),
    "negative label": (change_hdf5("test", "f8", "label", [-1, 2]), TEST, "f8"),
    "pixels not finite": (change_hdf5("train", "f1", "pixels", nan), TRAIN, "f1"),
    "pixels out of range": (change_hdf5("train", "f1", "pixels", nan * 0 + 7), TRAIN, "f1"),
    "pixels of another shape": (
        change_hdf5("train", "f1", "pixels", np.ones((3, 28, 27), np.float32)),
        TRAIN,
        "f1",
    ),
    "missing field": (change_hdf5("train", "f1", "label", None), TRAIN, "f1"),
    "different lengths": (change_hdf5("train", "f10", "label", np.empty(0, np.int32)), TRAIN, "f10"),
    "client is a link to another file": (external_link, TRAIN, "spy"),
    "field is a link to another file": (external_field, TRAIN, "f1"),
    "truncated file": (truncate(files.hdf5_directory, TRAIN, 0.7), TRAIN, None),
    "scrambled file": (scramble(files.hdf5_directory, TEST), TEST, None),
}


@pytest.mark.parametrize(("make", "file", "client"), CASES.values(), ids=CASES.keys())
def test_invalid_file_is_rejected(places, make: Make, file: str, client: str | None) -> None:
    error = rejected_import("emnist", make(places.source), places.to)
    assert error.path is not None and error.path.name == file
    assert error.client == client or client is None


def test_message_names_file_client_and_allowed_labels(places) -> None:
    path = change_hdf5("train", "f1", "label", [1, 62, 3])(places.source)
    text = str(rejected_import("emnist", path, places.to))
    assert all(part in text for part in (TRAIN, "'f1'", "label 62", "0 to 61"))
