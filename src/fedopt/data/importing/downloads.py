"""Download the public files, with checksums, mirrors and resumed transfers.

Pooch manages the cache and verifies checksums. Its own downloads cannot be resumed, so the transfer is
implemented here. The size of a file and the rate of its transfer have limits. The environment variable
FEDOPT_DATA_URL replaces all addresses by a private mirror.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pooch
import requests
import urllib3

from fedopt.cache import data_directory
from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import (
    ImportResult,
    OnProgress,
    import_dataset,
    no_progress,
    recorded_options,
)
from fedopt.data.store import is_store, open_store
from fedopt.data.store.locations import store_directory
from fedopt.errors import DataError, FedoptError, RunError, unknown
from fedopt.files import Log, disk_errors, locked, no_log, open_without_links

TFF = "https://storage.googleapis.com/tff-datasets-public/"
FEDML = "https://fedml.s3-us-west-1.amazonaws.com/"  # a mirror of the same archives
TORONTO = "https://www.cs.toronto.edu/~kriz/"

ATTEMPTS = 5
FIRST_WAIT = 1.0  # seconds before the second attempt; doubled for each further attempt
TIMEOUT = (10, 60)  # seconds to connect, and between two packets
CHUNK = 1 << 16
MAX_BYTES = 1 << 30  # of a file; Stack Overflow's may be larger
MAX_LENGTH_DIGITS = 20  # of Content-Length
MIN_RATE = 10_000.0  # bytes per second, on average over RATE_SECONDS
RATE_SECONDS = 60.0
TEMPORARY_ERRORS = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,
)


@dataclass(frozen=True)
class Remote:
    """A public file: name, checksum as `algorithm:digest`, and base addresses."""

    file: str
    checksum: str
    bases: tuple[str, ...]
    max_bytes: int = MAX_BYTES


SHA256 = {
    "fed_emnist.tar.bz2": "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
    "fed_emnist_digitsonly.tar.bz2": "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
    "fed_cifar100.tar.bz2": "e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de",
    "shakespeare.tar.bz2": "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
    "stackoverflow.tar.bz2": "99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
    "stackoverflow.word_count.tar.bz2": "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
    "stackoverflow.tag_count.tar.bz2": "6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d",
}


def _tff(
    *files: str, bases: tuple[str, ...] = (TFF, FEDML), max_bytes: int = MAX_BYTES
) -> tuple[Remote, ...]:
    return tuple(Remote(file, f"sha256:{SHA256[file]}", bases, max_bytes) for file in files)


DIGITS = _tff("fed_emnist_digitsonly.tar.bz2", bases=(TFF,))
REMOTES: dict[str, tuple[Remote, ...]] = {
    "emnist": _tff("fed_emnist.tar.bz2"),
    "cifar10": (Remote("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", (TORONTO,)),),
    "cifar100": _tff("fed_cifar100.tar.bz2"),
    "shakespeare": _tff("shakespeare.tar.bz2"),
    "stackoverflow": _tff(
        "stackoverflow.tar.bz2",
        "stackoverflow.word_count.tar.bz2",
        "stackoverflow.tag_count.tar.bz2",
        max_bytes=16 * MAX_BYTES,
    ),
}


def get_dataset(
    name: str,
    to: Path | None = None,
    options: ImportOptions | None = None,
    log: Log = no_log,
    on_progress: OnProgress = no_progress,
) -> ImportResult:
    """Download the public files of a dataset and import them. Existing downloads are reused."""
    if name not in REMOTES:
        raise unknown("dataset", name, REMOTES)
    options = options or ImportOptions()
    remotes = DIGITS if name == "emnist" and options.digits else REMOTES[name]
    target = to or store_directory(name)
    if (existing := _existing_import(name, target, remotes, options)) is not None:
        return existing
    downloads = data_directory() / "downloads"
    paths = [fetch(remote, downloads, name, log, on_progress, options.limit_factor) for remote in remotes]
    return import_dataset(name, paths, target, options, log, on_progress)


def fetch(
    remote: Remote,
    directory: Path,
    name: str,
    log: Log = no_log,
    on_progress: OnProgress = no_progress,
    limit_factor: float = 1.0,
) -> Path:
    """Return the path of the file in `directory`. Download it if needed, trying all addresses in order."""
    pooch.get_logger().setLevel("ERROR")  # its messages would interrupt the progress bar
    path = directory / remote.file
    failures: list[_Unreachable] = []
    with locked(path, log):
        for url in _addresses(remote):
            try:
                return _retrieve(url, remote, path, log, on_progress, limit_factor)
            except _Unreachable as error:
                failures.append(error)
    reasons = "; ".join(map(str, failures))
    if all(isinstance(failure, _WrongChecksum) for failure in failures):
        raise DataError(f"{reasons}; the file was changed and is not used", path=path)
    later = "" if isinstance(failures[-1], _TooLarge) else "try again later, or "
    raise RunError(
        f"{reasons}; {later}get {remote.file} by other means and run "
        f"`fedopt data import {name} {remote.file}`"
    )


def _addresses(remote: Remote) -> list[str]:
    """Return the addresses of a file, in the order of use."""
    mirror = os.environ.get("FEDOPT_DATA_URL")
    bases: Sequence[str] = (mirror,) if mirror else remote.bases
    return [base.rstrip("/") + "/" + remote.file for base in bases]


class _Unreachable(Exception):
    """The file cannot be downloaded from an address."""


class _TooLarge(_Unreachable):
    """The file is larger than the limit."""


class _WrongChecksum(_Unreachable):
    """An address sends another file, for example the login page of a network."""


def _retrieve(
    url: str, remote: Remote, path: Path, log: Log, on_progress: OnProgress, limit_factor: float
) -> Path:
    limits = TransferLimits(limit_factor * remote.max_bytes, MIN_RATE / limit_factor)
    transfer = Transfer(path.with_name(path.name + ".part"), limits, log, on_progress)
    for last in (False, True):
        try:
            with disk_errors(path):
                pooch.retrieve(url, remote.checksum, path.name, path.parent, downloader=transfer)
            return path
        except ValueError:  # the checksum differs
            if last or not transfer.resumed:
                raise _WrongChecksum(f"{url}: the checksum is not {remote.checksum}") from None
            log(f"{path.name}: the resumed file is damaged; downloading it again")
    raise AssertionError("unreachable")


class TransferLimits(NamedTuple):
    """The largest size of a file in bytes, and the lowest rate of its transfer in bytes per second."""

    size: float
    rate: float


class Transfer:
    """A downloader for Pooch that resumes a partial file."""

    def __init__(
        self,
        part: Path,
        limits: TransferLimits,
        log: Log = no_log,
        on_progress: OnProgress = no_progress,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.part, self.limits = part, limits
        self.log, self.on_progress, self.wait = log, on_progress, wait
        self.resumed = False

    def __call__(self, url: str, output_file: str, manager: Any) -> None:
        self.resumed = self._size() > 0
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transfer(url)
                break
            except TEMPORARY_ERRORS as error:
                if attempt == ATTEMPTS:
                    raise _Unreachable(f"cannot download {url} ({_reason(error)})") from None
                self.log(f"{self.part.stem}: {_reason(error)}; resuming from byte {self._size():,}")
            except requests.RequestException as error:
                raise _Unreachable(f"cannot download {url} ({_reason(error)})") from None
            self.wait(FIRST_WAIT * 2 ** (attempt - 1))
        os.replace(self.part, output_file)

    def _transfer(self, url: str) -> None:
        have = self._size()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == 416:  # no bytes left: the partial file is complete or wrong
                self._restart_unless_complete(response.headers.get("Content-Range", ""), have)
                return
            if response.status_code >= 500 or response.status_code == 429:
                raise requests.ConnectionError(f"the server answers {response.status_code}")
            if not response.ok:
                raise _Unreachable(f"{url} answers {response.status_code} {response.reason}")
            self._append(response, have if self._is_partial(response, have) else 0)

    def _append(self, response: requests.Response, have: int) -> None:
        length = response.headers.get("Content-Length", "")
        if len(length) > MAX_LENGTH_DIGITS:
            raise _Unreachable(f"{response.url} declares a length of {len(length):,} characters")
        total = have + int(length) if length.isdecimal() else None
        self._check_size(total or 0)
        since, received = time.monotonic(), 0
        with open(self.part, "ab" if have else "wb", opener=open_without_links) as file:
            while chunk := response.raw.read1(CHUNK):  # does not wait for a full chunk
                file.write(chunk)
                have, received = have + len(chunk), received + len(chunk)
                self.on_progress(self.part.stem, have, total)
                self._check_size(have)
                if (seconds := time.monotonic() - since) > RATE_SECONDS:
                    if received < self.limits.rate * seconds:
                        raise requests.ConnectionError(
                            f"slower than {self.limits.rate:,.0f} bytes per second"
                        )
                    since, received = time.monotonic(), 0
        if total is not None and have != total:
            raise requests.ConnectionError(f"received {have:,} of {total:,} bytes")

    def _check_size(self, size: int) -> None:
        if size > self.limits.size:
            self.part.unlink(missing_ok=True)
            limit = f"larger than {self.limits.size:,.0f} bytes; --limit-factor raises this limit"
            raise _TooLarge(f"{self.part.stem} is {limit}")

    @staticmethod
    def _is_partial(response: requests.Response, have: int) -> bool:
        """Whether the server sends only the missing bytes. A server without ranges sends the whole file."""
        content_range = response.headers.get("Content-Range", "")
        return response.status_code == 206 and content_range.startswith(f"bytes {have}-")

    def _restart_unless_complete(self, content_range: str, have: int) -> None:
        if content_range != f"bytes */{have}":
            self.part.unlink()
            raise requests.ConnectionError("the partial file does not match")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0


def _reason(error: Exception) -> str:
    """Return a short cause. The text of the library repeats the address."""
    text = str(error)
    known_causes = (
        "Connection refused",
        "Name or service not known",
        "timed out",
        "Temporary failure in name",
    )
    for cause in known_causes:
        if cause in text:
            return cause.lower()
    return text if len(text) < 80 else "the connection was lost"


def _existing_import(
    name: str, target: Path, remotes: Sequence[Remote], options: ImportOptions
) -> ImportResult | None:
    """Return the import of the same public files, recognised without a download, or None."""
    if not is_store(target) or options.replace:
        return None
    try:
        store = open_store(target)
    except FedoptError:
        return None  # damaged: import it again
    checksums = {item["file"]: f"sha256:{item['sha256']}" for item in store.manifest["source"]}
    same = (
        store.name == name
        and set(checksums) == {remote.file for remote in remotes}
        and all(checksums[r.file] == r.checksum for r in remotes if r.checksum.startswith("sha256:"))
        and store.manifest["notes"].get("options") == recorded_options(name, options)
    )
    return ImportResult(store, is_new=False) if same else None
