"""Stores at URLs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from object_store import read_all, remote
from smallstores import write_small_store

from fedopt.data.store import open_store
from fedopt.data.store.locations import data_source, find_store
from fedopt.data.store.stored import manifest_checksum
from fedopt.errors import DataError


@pytest.fixture
def uploaded(memory: str, tmp_path: Path) -> str:
    write_small_store(tmp_path / "store")
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    remote(memory).upload(tmp_path / "store", [str(file.relative_to(tmp_path / "store")) for file in files])
    return memory


def test_store_is_downloaded_once_and_has_the_same_clients(uploaded: str, tmp_path: Path):
    store, original = open_store(uploaded), open_store(tmp_path / "store")
    for client in (0, 1):
        there, here = (each.split("train").columns(client)["x"] for each in (original, store))
        np.testing.assert_array_equal(there, here)
    assert manifest_checksum(uploaded) == manifest_checksum(tmp_path / "store")
    remote(uploaded).delete([name for name in read_all(uploaded) if name != "manifest.json"])
    assert open_store(uploaded).directory == store.directory  # not downloaded again


def test_url_is_recorded_as_the_source(uploaded: str):
    assert data_source(uploaded) == uploaded
    assert find_store(uploaded).name == "own"


def test_changed_store_is_downloaded_again(uploaded: str):
    before = open_store(uploaded)
    manifest = {**before.manifest, "notes": {"changed": True}}
    remote(uploaded).write("manifest.json", json.dumps(manifest).encode())
    after = open_store(uploaded)
    assert after.directory != before.directory
    assert after.manifest["notes"] == {"changed": True}


def test_url_without_a_store_is_an_error(memory: str):
    with pytest.raises(DataError):
        open_store(memory)


def test_incomplete_store_is_an_error(uploaded: str):
    remote(uploaded).write("train/x.npy", b"short")
    with pytest.raises(DataError) as error:
        open_store(uploaded)
    assert error.value.path is not None and error.value.path.name == "x.npy"


def test_manifest_with_names_outside_of_the_store_is_refused(uploaded: str, tmp_path: Path):
    manifest = json.loads(remote(uploaded).read("manifest.json") or b"")
    remote(uploaded).write("manifest.json", json.dumps({**manifest, "files": {"../../x": 1}}).encode())
    with pytest.raises(DataError):
        open_store(uploaded)
    assert not list((tmp_path / "cache").rglob("x"))


def test_damaged_copy_is_not_kept(uploaded: str):
    content = remote(uploaded).read("train/x.npy") or b""
    remote(uploaded).write("train/x.npy", content + b"more")
    with pytest.raises(DataError):
        open_store(uploaded)
    remote(uploaded).write("train/x.npy", content)
    assert open_store(uploaded).name == "own"
