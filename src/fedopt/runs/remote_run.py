"""A run whose directory is at a URL, such as s3://bucket/run.

The run works in a local copy, and changed files are uploaded after every checkpoint and every change of
run.json. run.json at the URL has the id of the process that writes the run; a process that finds another id
stops. Files at the URL that do not belong to the run are never downloaded, replaced or deleted.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.cache import data_directory
from fedopt.documents import is_intact, parse_json, seal
from fedopt.errors import FedoptError, RemoteDirectoryError, UploadError
from fedopt.files import Log, disk_errors, lock_directory
from fedopt.remote.directory import RemoteDirectory
from fedopt.remote.location import Location, RemoteUrl

# The files of a run in the order of uploads, so that the newest complete checkpoint is always usable.
_FILES = (
    r"data\.json|model\.safetensors|clients/\d+-\d+\.safetensors|loggers/\w+\.jsonl|tensorboard/events\.[\w.]+",
    r"metrics\.jsonl",  # may be ahead of a checkpoint, but not behind
    r"checkpoints/\d+/(state\.safetensors|clients\.json)",
    r"checkpoints/\d+/position\.json",  # completes a checkpoint
    r"run\.json",
    r"config\.toml",  # makes the directory a run
)
_RUN_FILE = re.compile("|".join(_FILES))
# An interrupted first upload may leave these without config.toml.
_FIRST = ("data.json", "model.safetensors", "metrics.jsonl", "run.json")


class LocalRun(NamedTuple):
    """A run directory on this machine."""

    path: Path
    on_write: Callable[[], None]  # call it when the run is open, and after it has changed
    url: str | None = None  # of the remote directory


@contextmanager
def open_location(location: Location | None, log: Log) -> Iterator[LocalRun | None]:
    """Return the run directory on this machine: the directory itself, or the local copy of a URL.

    At the end, all changes have been uploaded, or an `UploadError` says how to continue.
    """
    if not isinstance(location, RemoteUrl):
        yield None if location is None else LocalRun(location, lambda: None)
        return
    home = data_directory() / "runs" / location.digest
    with named_by_url(home, location):
        lock = lock_directory(home, "fedopt process")
    try:
        run = _RemoteRun(location, home / (location.name or "run"), log)
        try:
            with named_by_url(run.path, location):
                yield LocalRun(run.path, run.upload, str(location))
        except BaseException:
            run.finish(log)
            raise
        run.finish()
    finally:
        os.close(lock)


@contextmanager
def downloaded(location: Location, *, checkpoints: bool, clients: bool = False) -> Iterator[Path]:
    """Return a directory to read from: the location itself, or a temporary copy of the run at a URL.

    The copy has no vectors unless `checkpoints` is set, and no state of clients unless `clients` is set.
    """
    if isinstance(location, Path):
        yield location
        return
    remote = RemoteDirectory(location)
    names = _complete(remote.files())
    if "config.toml" not in names:
        raise RemoteDirectoryError(
            f"{location} holds no run; name a URL that `fedopt run --out` has written", url=str(location)
        )
    left_out = () if checkpoints else (".safetensors",)
    names = [name for name in names if not name.endswith(("metrics.jsonl", *left_out))]
    with tempfile.TemporaryDirectory(prefix="fedopt-") as scratch:
        path = Path(scratch) / location.name
        remote.download([name for name in names if clients or not name.startswith("clients/")], path)
        # Last: a checkpoint and run.json belong to the beginning of a file that grows meanwhile.
        remote.download(["metrics.jsonl"], path)
        with named_by_url(path, location):
            yield path


@contextmanager
def named_by_url(path: Path, url: RemoteUrl) -> Iterator[None]:
    """Name the URL instead of its local copy in error messages."""
    try:
        yield
    except FedoptError as error:
        if not isinstance(error, UploadError):  # which names both
            error.args = (str(error).replace(str(path), str(url)), *error.args[1:])
        raise


def take_over(url: RemoteUrl) -> None:
    """Remove the id of the process that writes a run, which stops at its next upload."""
    remote = RemoteDirectory(url)
    info = _parse(remote.read("run.json"))
    if "sha256" in info and info.pop("writer", None):
        remote.write("run.json", json.dumps(seal(info), indent=2).encode())


class _RemoteRun:
    """The local copy of a run at a URL, locked on this machine."""

    def __init__(self, url: RemoteUrl, path: Path, log: Log) -> None:
        """Make the local copy equal to the URL, unless the copy has later rounds because uploads failed."""
        self.url, self.path, self._log, self._remote = url, path, log, RemoteDirectory(url)
        self._uploads = False  # not if the run is refused, or another process writes it
        found, info = self._remote.files(), _parse(self._remote.read("run.json"))
        if "config.toml" not in found and (foreign := [name for name in found if name not in _FIRST]):
            problem = f"is not empty and not a run directory (it has {foreign[0]!r}); choose another URL"
            raise RemoteDirectoryError(f"{url} {problem}", url=str(url))
        writer = info.get("writer")
        # The ids of all processes that have used the local copy. It is locked, so the others have ended.
        with disk_errors(path), open(path.parent / ".writers", "a+") as file:
            file.seek(0)
            if info.get("status") == "running" and writer and writer not in file.read().split():
                remedy = f"wait until it ends, or use `fedopt resume {url} --take-over` if it was killed"
                raise RemoteDirectoryError(f"{url} is in use by {writer!r}; {remedy}", url=str(url))
            self._id = f"{socket.gethostname()}-{secrets.token_hex(8)}"
            file.write(f"{self._id}\n")
        self._writers = {writer, self._id}  # that run.json at the URL may have
        self._uploaded: dict[str, object] = dict.fromkeys(filter(_RUN_FILE.fullmatch, found))
        is_ahead = info and _newest_round(self._local_files()) > _newest_round(found)
        if is_ahead and _parse((path / "run.json").read_bytes()).get("started") == info.get("started"):
            log(f"{path} has later rounds than {url}; uploading them")
            return
        with disk_errors(path):
            if path.exists():
                shutil.rmtree(path)
            self._remote.download(_complete(found), path)
        self._uploaded |= self._local_files()

    def upload(self) -> None:
        """Upload what has changed. If the URL cannot be reached, the next call tries again."""
        self._uploads = True
        try:
            self._upload()
        except RemoteDirectoryError as error:
            # Later uploads begin with checkpoints, and without config.toml they would not belong to a run.
            if "config.toml" not in self._uploaded:
                raise
            self._log(f"warning: {error}; trying again after the next checkpoint")

    def _upload(self) -> None:
        files = self._local_files()
        changed = [name for name, state in files.items() if self._uploaded.get(name) != state]
        gone = [name for name in self._uploaded if name not in files]
        removed = [name for name in gone if name.startswith(("checkpoints/", "clients/"))]
        if (changed or removed) and _parse(self._remote.read("run.json")).get("writer") not in self._writers:
            self._uploads = False
            message = f"another process has changed {self.url}; this one stops, its files are in {self.path}"
            raise UploadError(message, url=str(self.url), path=self.path)
        for step in _FILES:
            names = [name for name in changed if re.fullmatch(step, name)]
            if names == ["run.json"]:
                info = _parse((self.path / "run.json").read_bytes()) | {"writer": self._id}
                self._remote.write("run.json", json.dumps(seal(info), indent=2).encode())
                self._writers = {self._id}
            else:
                self._remote.upload(self.path, names)
        self._remote.delete(removed)
        self._uploaded = files

    def _local_files(self) -> dict[str, object]:
        """The size and time of every file of the run."""
        stats = {path.relative_to(self.path).as_posix(): path.lstat() for path in self.path.rglob("*")}
        files = filter(_RUN_FILE.fullmatch, sorted(stats))
        return {name: (stats[name].st_size, stats[name].st_mtime_ns) for name in files}

    def finish(self, log: Log | None = None) -> None:
        """Upload the last changes. Log a failure if the run has failed for another reason."""
        try:
            if self._uploads:
                self._upload()
        except RemoteDirectoryError as error:
            message = f"{error}; the run is in {self.path}: repeat the command on this machine to upload it"
            if log is None:
                raise UploadError(message, url=str(self.url), path=self.path) from error
            log(f"warning: {message}")


def _complete(names: Iterable[str]) -> list[str]:
    """The files of the run, without checkpoints whose upload was interrupted before its last file."""
    names = list(filter(_RUN_FILE.fullmatch, names))
    finished = tuple(name.removesuffix("position.json") for name in names if name.endswith("/position.json"))
    return [name for name in names if not name.startswith("checkpoints/") or name.startswith(finished)]


def _newest_round(names: Iterable[str]) -> int:
    return max((int(name.split("/")[1]) for name in _complete(names) if name.startswith("ch")), default=0)


def _parse(run_json: bytes | None) -> dict[str, Any]:
    """Return the content of run.json; nothing if it is missing or damaged."""
    try:
        info = parse_json(run_json or b"")
    except ValueError:
        return {}
    return info if isinstance(info, dict) and is_intact(info) else {}
