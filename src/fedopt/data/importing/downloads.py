"""Downloading the public files: checked, resumed where a transfer broke off, from a mirror if need be.

Pooch keeps the cache and verifies checksums; its downloads start over when they break off, so the transfer
itself is here. FEDOPT_DATA_URL replaces all addresses, for a mirror of one's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch
import requests

from fedopt.data.importing.datasets import Options
from fedopt.data.importing.importer import Imported, Tick, import_dataset, no_tick, told
from fedopt.data.store import is_store, open_store
from fedopt.data.store.locations import data_directory, store_directory
from fedopt.errors import FedoptError, RunError, UserError, unknown
from fedopt.files import Log, disk_errors, locked, no_log

TFF = "https://storage.googleapis.com/tff-datasets-public/"
FEDML = "https://fedml.s3-us-west-1.amazonaws.com/"  # the same archives
TORONTO = "https://www.cs.toronto.edu/~kriz/"

ATTEMPTS = 5
FIRST_WAIT = 1.0  # seconds before the second attempt; doubled each time
TIMEOUT = (10, 60)  # seconds to connect, and between two packets
CHUNK = 1 << 16
PASSING = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


@dataclass(frozen=True)
class Remote:
    """A public file, the addresses that have it, and its checksum as `algorithm:digest`."""

    file: str
    checksum: str
    bases: tuple[str, ...]


def _tff(file: str, sha256: str, *mirrors: str) -> Remote:
    return Remote(file, f"sha256:{sha256}", (TFF, *mirrors))


DIGITS = _tff(
    "fed_emnist_digitsonly.tar.bz2", "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b"
)
REMOTES: dict[str, tuple[Remote, ...]] = {
    "emnist": (
        _tff("fed_emnist.tar.bz2", "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0", FEDML),
    ),
    "cifar10": (Remote("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", (TORONTO,)),),
    "cifar100": (
        _tff(
            "fed_cifar100.tar.bz2", "e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de", FEDML
        ),
    ),
    "shakespeare": (
        _tff(
            "shakespeare.tar.bz2", "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707", FEDML
        ),
    ),
    "stackoverflow": (
        _tff(
            "stackoverflow.tar.bz2", "99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2", FEDML
        ),
        _tff(
            "stackoverflow.word_count.tar.bz2",
            "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
            FEDML,
        ),
        _tff(
            "stackoverflow.tag_count.tar.bz2",
            "6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d",
            FEDML,
        ),
    ),
}


def get_dataset(
    name: str,
    to: Path | None = None,
    options: Options | None = None,
    log: Log = no_log,
    tick: Tick = no_tick,
) -> Imported:
    """Download the public files of a dataset and import them; nothing is fetched twice."""
    if name not in REMOTES:
        raise unknown("dataset", name, REMOTES)
    options = options or Options()
    remotes = (DIGITS,) if name == "emnist" and options.digits else REMOTES[name]
    target = to or store_directory(name)
    if (before := _imported(name, target, remotes, options)) is not None:
        return before
    downloads = data_directory() / "downloads"
    paths = [fetch(remote, downloads, name, log, tick) for remote in remotes]
    return import_dataset(name, paths, target, options, log, tick)


def fetch(remote: Remote, directory: Path, name: str, log: Log = no_log, tick: Tick = no_tick) -> Path:
    """The file in `directory`, downloaded if it is not there whole; every address is tried in turn."""
    pooch.get_logger().setLevel("ERROR")  # it would write to the terminal beside our progress
    path = directory / remote.file
    failures = []
    with locked(path, log):
        for url in addresses(remote):
            try:
                return _retrieve(url, remote, path, log, tick)
            except _Unreachable as error:
                failures.append(str(error))
    raise RunError(
        f"{'; '.join(failures)}; try again later, or get {remote.file} another way and run "
        f"`fedopt data import {name} {remote.file}`"
    )


def addresses(remote: Remote) -> list[str]:
    """Where a file is looked for, in order."""
    chosen = os.environ.get("FEDOPT_DATA_URL")
    bases: Sequence[str] = (chosen,) if chosen else remote.bases
    return [base.rstrip("/") + "/" + remote.file for base in bases]


class _Unreachable(Exception):
    """An address that does not give the file."""


def _retrieve(url: str, remote: Remote, path: Path, log: Log, tick: Tick) -> Path:
    transfer = Transfer(path.with_name(path.name + ".part"), log, tick)
    for last in (False, True):
        try:
            with disk_errors(path):
                pooch.retrieve(url, remote.checksum, path.name, path.parent, downloader=transfer)
            return path
        except ValueError:  # the checksum differs
            if last or not transfer.resumed:
                raise UserError(
                    f"{url}: the checksum is not {remote.checksum}; the file was changed on its way or "
                    "at its source, and is not used"
                ) from None
            log(f"{path.name} was not whole when it was resumed; once more from the start")
    raise AssertionError("unreachable")


class Transfer:
    """Pooch's downloader: appends to a partial file until it is whole."""

    def __init__(
        self, part: Path, log: Log = no_log, tick: Tick = no_tick, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.part, self.log, self.tick, self.wait = part, log, tick, wait
        self.resumed = False

    def __call__(self, url: str, output_file: str, manager: Any) -> None:
        self.resumed = self._size() > 0
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transfer(url)
                break
            except PASSING as error:
                if attempt == ATTEMPTS:
                    raise _Unreachable(f"cannot download {url} ({_reason(error)})") from None
                self.log(f"{self.part.stem}: {_reason(error)}; again from byte {self._size():,}")
            except requests.RequestException as error:
                raise _Unreachable(f"cannot download {url} ({_reason(error)})") from None
            self.wait(FIRST_WAIT * 2 ** (attempt - 1))
        os.replace(self.part, output_file)

    def _transfer(self, url: str) -> None:
        have = self._size()
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == 416:  # nothing after what we have: whole, or not of this file
                self._restart_unless_whole(response.headers.get("Content-Range", ""), have)
                return
            if response.status_code >= 500 or response.status_code == 429:
                raise requests.ConnectionError(f"the server answers {response.status_code}")
            if not response.ok:
                raise _Unreachable(f"{url} answers {response.status_code} {response.reason}")
            if have and not self._continues(response, have):
                have = 0
            self._append(response, have)

    def _append(self, response: requests.Response, have: int) -> None:
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(self.part, "ab" if have else "wb") as file:
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                have += len(chunk)
                self.tick(self.part.stem, have, total)
        if total is not None and have != total:
            raise requests.ConnectionError(f"{have:,} bytes of {total:,} arrived")

    @staticmethod
    def _continues(response: requests.Response, have: int) -> bool:
        """Whether the server sends what follows; one that cannot sends all of it again."""
        sent = response.headers.get("Content-Range", "")
        return response.status_code == 206 and sent.startswith(f"bytes {have}-")

    def _restart_unless_whole(self, content_range: str, have: int) -> None:
        if content_range != f"bytes */{have}":
            self.part.unlink()
            raise requests.ConnectionError("the partial file does not fit")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0


def _reason(error: Exception) -> str:
    """The cause in a few words; the library's text repeats the address and its own internals."""
    text = str(error)
    for known in (
        "Connection refused",
        "Name or service not known",
        "timed out",
        "Temporary failure in name",
    ):
        if known in text:
            return known.lower()
    return text if len(text) < 80 else "the connection broke off"


def _imported(name: str, target: Path, remotes: Sequence[Remote], options: Options) -> Imported | None:
    """What an earlier `get` imported from the same files, recognised without downloading them."""
    if not is_store(target) or options.replace:
        return None
    try:
        store = open_store(target)
    except FedoptError:
        return None  # damaged: imported again
    source = {item["file"]: f"sha256:{item['sha256']}" for item in store.manifest["source"]}
    same = store.name == name and set(source) == {remote.file for remote in remotes}
    for remote in remotes:
        same = same and (not remote.checksum.startswith("sha256:") or source[remote.file] == remote.checksum)
    same = same and store.manifest["notes"].get("options") == told(name, options)
    return Imported(store, fresh=False) if same else None
