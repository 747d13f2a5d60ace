"""Stores at URLs."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from object_store import read_all, remote
from smallstores import write_small_store

from fedopt.data.store import open_store
from fedopt.data.store.locations import data_source, find_store
from fedopt.data.store.stored import manifest_checksum
from fedopt.errors import DataError, RemoteDirectoryError


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
    notes = {"changed": True}
    manifest = {**before.manifest, "notes": notes, "sha256": {}, "checksum": ""}
    remote(uploaded).write("manifest.json", json.dumps(manifest).encode())
    after = open_store(uploaded)
    assert after.directory != before.directory
    assert after.manifest["notes"] == {"changed": True}


def test_url_without_a_store_is_an_error(memory: str):
    with pytest.raises(DataError):
        open_store(memory)


def test_file_larger_than_in_the_manifest_is_not_downloaded_completely(uploaded: str):
    """The target of the copy receives no byte beyond the limit."""
    remote(uploaded).write("train/x.npy", bytes(1 << 20))
    with pytest.raises(RemoteDirectoryError) as error:
        open_store(uploaded)
    assert error.value.url == uploaded
    target = io.BytesIO()
    with pytest.raises(RemoteDirectoryError):
        remote(uploaded).copy("train/x.npy", target, 1000)
    assert len(target.getvalue()) <= 1000


def test_http_server_that_sends_more_than_the_manifest_lists_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path / "cache"))
    write_small_store(tmp_path / "store")
    manifest = (tmp_path / "store" / "manifest.json").read_bytes()
    largest, sent = 1 << 28, []

    class EndlessFiles(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            if self.path.endswith("manifest.json"):
                self.wfile.write(manifest)
                return
            with suppress(OSError):
                while sum(sent) < largest:
                    sent.append(self.wfile.write(bytes(1 << 16)))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), EndlessFiles) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(RemoteDirectoryError):
            open_store(f"http://127.0.0.1:{server.server_port}/store")
        server.shutdown()
    assert sum(sent) < largest
    assert not list((tmp_path / "cache").rglob("*.npy"))


@pytest.mark.parametrize("change", [lambda old: old + bytes(100), lambda old: old[:-1] + b"?"])
def test_damaged_local_copy_is_downloaded_again(uploaded: str, change: Callable[[bytes], bytes]):
    copy = open_store(uploaded).directory / "train" / "x.npy"
    content = copy.read_bytes()
    copy.write_bytes(change(content))
    os.utime(copy, (1, 1))
    assert open_store(uploaded).name == "own"
    assert copy.read_bytes() == content


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


@pytest.mark.parametrize("change", [lambda old: old[:-1], lambda old: old[:-1] + b"?"])
def test_damaged_copy_is_not_kept(uploaded: str, change: Callable[[bytes], bytes]):
    content = remote(uploaded).read("train/x.npy") or b""
    remote(uploaded).write("train/x.npy", change(content))
    with pytest.raises(DataError) as error:
        open_store(uploaded)
    assert error.value.path is not None and error.value.path.name == "x.npy"
    remote(uploaded).write("train/x.npy", content)
    assert open_store(uploaded).name == "own"
