"""Downloads from a server on loopback: complete, interrupted, wrong, missing and redirected files."""

from __future__ import annotations

import hashlib
import http.server
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import publicfiles as files
import pytest

from fedopt.data.importing import downloads
from fedopt.data.importing.downloads import Remote, fetch, get_dataset
from fedopt.data.store import open_store
from fedopt.errors import DataError, DiskError, RunError

CONTENT = bytes(range(256)) * 4000  # about a megabyte


class Site(http.server.ThreadingHTTPServer):
    """Serves `content` by path. `plan(count)` selects a fault for each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []  # path and Range
        self.plan: Callable[[int], Any] = lambda count: None
        self.ranges = self.declares_length = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that were killed."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.0"  # one connection per request
    piece = 4096  # bytes between two pauses of a slow transfer

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        plan = self.server.plan(len(self.server.requests))
        if isinstance(plan, HTTPStatus):
            self.send_error(plan)
        elif isinstance(plan, str):
            self.send_response(302)
            self.send_header("Location", plan)
            self.end_headers()
        elif self.path not in self.server.content:
            self.send_error(404)
        else:
            self.send_content(self.server.content[self.path], wanted, plan)

    def send_content(self, content: bytes, wanted: str | None, plan: Any) -> None:
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.declares_length:
            self.send_header("Content-Length", str(len(content) - start))
        for name, value in plan.items() if isinstance(plan, dict) else ():
            self.send_header(name, value)
        self.end_headers()
        rest = content[start:]
        if isinstance(plan, float):  # slowly
            for at in range(0, len(rest), self.piece):
                self.wfile.write(rest[at : at + self.piece])
                time.sleep(plan)
        else:
            self.wfile.write(rest[:plan] if isinstance(plan, int) else rest)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        monkeypatch.setenv("FEDOPT_DATA_URL", server.url)
        monkeypatch.setattr(downloads, "FIRST_WAIT", 0.001)
        server.content["/a.bin"] = CONTENT
        yield server
        server.shutdown()
        thread.join()


def remote(content: bytes = CONTENT, file: str = "a.bin", kind: str = "sha256") -> Remote:
    return Remote(file, f"{kind}:{hashlib.new(kind, content).hexdigest()}", ("http://unused.invalid/",))


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_file_is_downloaded_once(site: Site, tmp_path: Path, kind: str) -> None:
    reports: list[tuple[str, int, int | None]] = []
    cache = tmp_path / "cache"
    for _ in range(2):
        path = fetch(remote(kind=kind), cache, "own", on_progress=lambda *report: reports.append(report))
        assert path.read_bytes() == CONTENT
    assert site.requests == [("/a.bin", None)]
    assert reports[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [path.name for path in cache.iterdir()] == ["a.bin"]


def test_interrupted_transfer_is_resumed(site: Site, tmp_path: Path) -> None:
    site.plan = lambda count: 300_000 if count < 3 else None
    messages: list[str] = []
    assert fetch(remote(), tmp_path, "own", log=messages.append).read_bytes() == CONTENT
    starts = [int(wanted[len("bytes=") : -1]) if wanted else 0 for _, wanted in site.requests]
    assert len(starts) == 3 and starts[0] == 0
    for before, after in zip(starts, starts[1:], strict=False):
        assert 300_000 - downloads.CHUNK < after - before <= 300_000
    assert len(messages) == 2 and "resuming from byte" in messages[0]


def test_download_is_resumed_after_a_kill(site: Site, tmp_path: Path) -> None:
    site.plan = lambda count: 0.02 if count == 1 else None
    code = f"""
from pathlib import Path
from fedopt.data.importing.downloads import Remote, fetch
fetch(Remote("a.bin", {remote().checksum!r}, ()), Path({str(tmp_path)!r}), "own")
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    part = tmp_path / "a.bin.part"
    while not (part.exists() and part.stat().st_size > 0):
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    have = part.stat().st_size
    assert 0 < have < len(CONTENT) and not (tmp_path / "a.bin").exists()
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT
    assert site.requests[-1] == ("/a.bin", f"bytes={have}-")
    assert not part.exists()


def test_server_without_ranges_sends_the_whole_file(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    site.ranges = False
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT


def test_complete_partial_file_is_used(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * (len(CONTENT) + 5)])
def test_partial_file_of_another_file_is_discarded(site: Site, tmp_path: Path, stale: bytes) -> None:
    (tmp_path / "a.bin.part").write_bytes(stale)
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT


def test_wrong_checksum_is_rejected_and_leaves_no_files(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        fetch(remote(b"what was published"), tmp_path, "own")
    assert caught.value.path == tmp_path / "a.bin"
    assert list(tmp_path.iterdir()) == []


def test_damaged_cached_file_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT[:-1])
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT


def test_missing_file_names_the_remedy(site: Site, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"404 .*fedopt data import own b\.bin") as caught:
        fetch(remote(file="b.bin"), tmp_path, "own")
    assert len(site.requests) == 1 and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_server_errors_are_retried_a_limited_number_of_times(site: Site, tmp_path: Path) -> None:
    site.plan = lambda count: HTTPStatus.SERVICE_UNAVAILABLE if count < 3 else None
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT
    (tmp_path / "a.bin").unlink()
    site.requests.clear()
    site.plan = lambda count: HTTPStatus.SERVICE_UNAVAILABLE
    with pytest.raises(RunError, match="503"):
        fetch(remote(), tmp_path, "own")
    assert len(site.requests) == downloads.ATTEMPTS


def test_redirects_are_followed(site: Site, tmp_path: Path) -> None:
    site.content["/moved/a.bin"] = CONTENT
    site.plan = lambda count: f"{site.url}/moved/a.bin" if count == 1 else None
    assert fetch(remote(), tmp_path, "own").read_bytes() == CONTENT
    assert [path for path, _ in site.requests] == ["/a.bin", "/moved/a.bin"]


def test_redirect_loop_is_an_error(site: Site, tmp_path: Path) -> None:
    site.plan = lambda count: f"{site.url}/a.bin"
    with pytest.raises(RunError):
        fetch(remote(), tmp_path, "own")


def test_mirror_is_used_if_the_first_address_fails(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDOPT_DATA_URL")
    there = Remote("a.bin", remote().checksum, (f"{site.url}/gone/", f"{site.url}/"))
    assert fetch(there, tmp_path, "own").read_bytes() == CONTENT
    assert [path for path, _ in site.requests] == ["/gone/a.bin", "/a.bin"]


def test_mirror_is_used_if_the_first_address_sends_another_file(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address answers with the login page of a network."""
    monkeypatch.delenv("FEDOPT_DATA_URL")
    site.content["/login/a.bin"] = b"<html>"
    there = Remote("a.bin", remote().checksum, (f"{site.url}/login/", f"{site.url}/"))
    assert fetch(there, tmp_path, "own").read_bytes() == CONTENT
    assert [path for path, _ in site.requests] == ["/login/a.bin", "/a.bin"]


def test_length_of_5000_digits_is_not_reported_as_a_wrong_checksum(site: Site, tmp_path: Path) -> None:
    site.declares_length = False
    site.plan = lambda count: {"Content-Length": "9" * 5000}
    with pytest.raises(RunError, match="a length of 5,000 characters"):
        fetch(remote(), tmp_path, "own")


def test_missing_server_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOPT_DATA_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(downloads, "FIRST_WAIT", 0.001)
    with pytest.raises(RunError, match="connection refused") as caught:
        fetch(remote(), tmp_path, "own")
    assert "\n" not in str(caught.value)


def test_slow_server_is_given_up(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4096 bytes every 20 ms are less than a megabyte per second. Each attempt ends after 50 ms."""
    monkeypatch.setattr(downloads, "MIN_RATE", 1e6)
    monkeypatch.setattr(downloads, "RATE_SECONDS", 0.05)
    site.plan = lambda count: 0.02
    start = time.monotonic()
    with pytest.raises(RunError, match=r"slower than 1,000,000 bytes per second.*fedopt data import"):
        fetch(remote(), tmp_path, "own")
    assert len(site.requests) == downloads.ATTEMPTS and time.monotonic() - start < 3


def test_single_bytes_are_counted_as_they_arrive(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer that waited for a full chunk of 64 KB would take a minute."""
    monkeypatch.setattr(downloads, "RATE_SECONDS", 0.05)
    monkeypatch.setattr(Handler, "piece", 1)
    site.plan = lambda count: 0.001
    with pytest.raises(RunError, match="slower than 10,000 bytes per second"):
        fetch(remote(), tmp_path, "own")


def test_limit_factor_accepts_a_slower_server(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MIN_RATE", 1e6)
    monkeypatch.setattr(downloads, "RATE_SECONDS", 0.05)
    site.content["/a.bin"] = CONTENT[:50_000]
    site.plan = lambda count: 0.02
    fetched = fetch(remote(CONTENT[:50_000]), tmp_path, "own", limit_factor=100)
    assert fetched.stat().st_size == 50_000 and len(site.requests) == 1


@pytest.mark.parametrize("declared", [True, False])
def test_file_above_the_size_limit_is_not_downloaded(site: Site, tmp_path: Path, declared: bool) -> None:
    site.declares_length = declared
    there = replace(remote(), max_bytes=100_000)
    with pytest.raises(RunError, match="a.bin is larger than 100,000 bytes; --limit-factor"):
        fetch(there, tmp_path, "own")
    assert list(tmp_path.iterdir()) == []
    assert fetch(there, tmp_path, "own", limit_factor=100).read_bytes() == CONTENT


def test_remedy_for_a_large_file_is_not_to_wait(site: Site, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="--limit-factor") as caught:
        fetch(replace(remote(), max_bytes=1000), tmp_path, "own")
    assert "try again later" not in str(caught.value)


def test_partial_file_that_is_a_link_is_not_followed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("private")
    (tmp_path / "a.bin.part").symlink_to(tmp_path / "victim")
    with pytest.raises(DiskError) as caught:
        fetch(remote(), tmp_path, "own")
    assert caught.value.path == tmp_path / "a.bin"
    assert (tmp_path / "victim").read_text() == "private"


def test_get_downloads_verifies_and_imports_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path / "data"))
    members = files.write_hdf5(tmp_path, "stackoverflow", files.stackoverflow())
    files.write_counts(tmp_path)
    archives = [files.write_tar(tmp_path / "stackoverflow.tar.bz2", members)]
    for name in ("stackoverflow.word_count", "stackoverflow.tag_count"):
        archives.append(files.write_tar(tmp_path / f"{name}.tar.bz2", [tmp_path / name]))
    published = []
    for archive in archives:
        site.content[f"/{archive.name}"] = archive.read_bytes()
        published.append(remote(archive.read_bytes(), archive.name))
    monkeypatch.setitem(downloads.REMOTES, "stackoverflow", tuple(published))
    first = get_dataset("stackoverflow")
    assert first.is_new and first.store.directory == tmp_path / "data" / "stores" / "stackoverflow"
    assert [item["file"] for item in first.store.manifest["source"]] == [a.name for a in archives]
    assert list(open_store(first.store.directory).split("train").ids) == ["00000001", "00000002"]
    site.requests.clear()
    assert not get_dataset("stackoverflow").is_new
    assert site.requests == []


def test_checksums_are_those_of_the_public_files() -> None:
    assert {r.file: r.checksum for some in downloads.REMOTES.values() for r in some} == {
        "fed_emnist.tar.bz2": "sha256:fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
        "cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530",
        "fed_cifar100.tar.bz2": "sha256:e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de",
        "shakespeare.tar.bz2": "sha256:0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
        "stackoverflow.tar.bz2": "sha256:99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
        "stackoverflow.word_count.tar.bz2": (
            "sha256:1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c"
        ),
        "stackoverflow.tag_count.tar.bz2": (
            "sha256:6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d"
        ),
    }
