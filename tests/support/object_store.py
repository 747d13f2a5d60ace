"""An S3 server on loopback, and directories at URLs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedopt.remote.directory import RemoteDirectory
from fedopt.remote.location import RemoteUrl


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a moto server in a thread of this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket, with an empty cache on this machine."""
    variables = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "FEDOPT_DATA": str(tmp_path / "cache"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    import fsspec

    bucket = f"test-{uuid.uuid4().hex[:8]}"
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(bucket)
    return f"s3://{bucket}"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty directory in the memory of this process, with an empty cache."""
    import fsspec

    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path / "cache"))
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]  # empty directories
    yield "memory://machine"
    filesystem.store.clear()


def remote(url: str) -> RemoteDirectory:
    return RemoteDirectory(RemoteUrl(url))


def read_all(url: str) -> dict[str, bytes]:
    """The content of all files below a URL."""
    directory = remote(url)
    contents = {name: directory.read(name) for name in directory.files()}
    return {name: content for name, content in contents.items() if content is not None}
