"""Files at URLs: on an S3 server, and the errors of unreachable ones."""

from __future__ import annotations

import io
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from object_store import read_all, remote

from fedopt.errors import MissingExtra, RemoteDirectoryError
from fedopt.remote import directory as directories

pytestmark = pytest.mark.xdist_group("s3")


def test_files_are_uploaded_listed_downloaded_and_deleted(s3: str, tmp_path: Path):
    (tmp_path / "from" / "inner").mkdir(parents=True)
    (tmp_path / "from" / "inner" / "a.bin").write_bytes(b"abc")
    (tmp_path / "from" / "empty").write_bytes(b"")
    directory = remote(f"{s3}/deep/run")
    assert directory.files() == []
    assert directory.read("empty") is None
    directory.upload(tmp_path / "from", ["inner/a.bin", "empty"])
    directory.write("text", b"xyz")
    assert directory.files() == ["empty", "inner/a.bin", "text"]
    directory.download(["inner/a.bin", "empty"], tmp_path / "to")
    assert (tmp_path / "to" / "inner" / "a.bin").read_bytes() == b"abc"
    assert (tmp_path / "to" / "empty").read_bytes() == b""
    directory.delete(["inner/a.bin", "empty"])
    assert read_all(f"{s3}/deep/run") == {"text": b"xyz"}


@pytest.mark.parametrize("store", ["memory", "s3"])
def test_names_with_wildcards_are_deleted_literally(store: str, request: pytest.FixtureRequest):
    url = request.getfixturevalue(store)
    for name in ("run1", "run[1]"):
        remote(f"{url}/{name}").write("a", b"1")
    remote(f"{url}/run[1]").delete(["a"])
    assert read_all(f"{url}/run1") == {"a": b"1"}
    assert read_all(f"{url}/run[1]") == {}


def test_server_that_sends_slowly_is_given_up(memory: str, monkeypatch: pytest.MonkeyPatch):
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(5)
            return super().read(1)

    directory = remote(memory)
    monkeypatch.setattr(directories, "_SECONDS_TO_ANSWER", 0.1)
    monkeypatch.setattr(directory._fs, "open", lambda *args, **options: Slow(b"abc"))
    with pytest.raises(RemoteDirectoryError, match="slower than 20,000 bytes per second"):
        directory.copy("a", io.BytesIO(), 1000)


def test_missing_bucket_is_an_error_and_is_not_created(s3: str):
    for attempt in range(2):
        with pytest.raises(RemoteDirectoryError) as error:
            remote("s3://no-such-bucket/run").write("a", b"1")
        assert error.value.url == "s3://no-such-bucket/run", attempt


def test_unreachable_host_is_an_error_within_a_minute(s3: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(RemoteDirectoryError) as error:
        remote(f"{s3}/run").files()
    assert error.value.url == f"{s3}/run"
    assert time.monotonic() - began < 60


def test_host_that_never_answers_is_tried_twice(s3: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(directories._S3["config_kwargs"], "read_timeout", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=20) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(RemoteDirectoryError):
            remote(f"{s3}/run").files()
        silent.settimeout(0)
        attempts = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                attempts += 1
    assert attempts == 2


def test_missing_credentials_are_an_error(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RemoteDirectoryError, match="credentials"):
        remote(f"{s3}/run").files()


def test_unknown_protocol_is_an_error():
    with pytest.raises(RemoteDirectoryError) as error:
        remote("nonsense://bucket/run")
    assert error.value.url == "nonsense://bucket/run"


def test_missing_package_of_a_protocol_is_named(monkeypatch: pytest.MonkeyPatch):
    import fsspec  # noqa: F401

    for module in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # already imported
    with pytest.raises(MissingExtra) as error:
        remote("s3://bucket/run")
    assert (error.value.package, error.value.extra) == ("s3fs", "remote")
    with pytest.raises(MissingExtra) as error:
        remote("gs://bucket/run")
    assert error.value.package == "gcsfs"
