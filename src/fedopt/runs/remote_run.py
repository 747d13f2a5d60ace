"""A run whose directory is at a URL, such as s3://bucket/run.

The run works in a local copy. After every checkpoint and every change of run.json, changed files are uploaded
in an order that keeps the remote directory consistent: a run that continues from it at any moment finds
all files that its newest complete checkpoint needs. Files at the URL that do not belong to the run are never
downloaded, replaced or deleted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedopt.cache import data_directory
from fedopt.documents import parse_json
from fedopt.errors import FedoptError, RemoteDirectoryError, RunDirectoryError, UploadError
from fedopt.files import Log, disk_errors, lock_directory
from fedopt.remote.directory import RemoteDirectory
from fedopt.remote.location import Location, RemoteUrl
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs import lease as leases
from fedopt.runs.lease import Lease
from fedopt.runs.run_files import (
    LAST_UPLOAD,
    checkpoint_rounds,
    find_foreign,
    is_temporary,
    select_complete,
    select_readable,
    select_run_files,
    upload_step,
)


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
    run = _RemoteRun(location, log)
    try:
        with named_by_url(run.path, location):
            yield LocalRun(run.path, run.upload, str(location))
    except BaseException:
        run.close(raise_errors=False)
        raise
    run.close(raise_errors=True)


@contextmanager
def downloaded(location: Location, *, checkpoints: bool, clients: bool = False) -> Iterator[Path]:
    """Return a directory to read from: the location itself, or a temporary copy of a URL.

    The copy has no vectors unless `checkpoints` is set, and no state of clients unless `clients` is set.
    """
    if isinstance(location, Path):
        yield location
        return
    remote = RemoteDirectory(location)
    names = [
        name
        for name in select_readable(remote.files())
        if (clients or "clients" not in name.split("/")[:-1])
        and (checkpoints or not name.endswith(".safetensors"))
    ]
    if not names:
        raise RemoteDirectoryError(
            f"{location} holds no run; name a URL that `fedopt run --out` has written", url=str(location)
        )
    with tempfile.TemporaryDirectory(prefix="fedopt-") as scratch:
        path = Path(scratch) / location.name
        # The metrics last: a checkpoint and run.json belong to the beginning of a file that grows meanwhile.
        metrics = [name for name in names if name.endswith("metrics.jsonl")]
        remote.download([name for name in names if name not in metrics], path)
        remote.download(metrics, path)
        with named_by_url(path, location):
            yield path


@contextmanager
def named_by_url(path: Path, url: RemoteUrl) -> Iterator[None]:
    """Name the URL instead of its local copy in error messages."""
    try:
        yield
    except FedoptError as error:
        error.args = (str(error).replace(str(path), str(url)), *error.args[1:])
        raise


class _RemoteRun:
    """The local copy of a run at a URL. It is locked on this machine and leased at the URL."""

    def __init__(self, url: RemoteUrl, log: Log) -> None:
        self.url, self._log = url, log
        self._remote = RemoteDirectory(url)
        home = data_directory() / "runs" / url.digest
        self.path = home / (url.name or "run")
        self._unsynced = home / ".unsynced"  # exists during an upload, and after one that failed
        self._uploaded: dict[str, tuple[int, int] | None] = {}  # size and time of the local file
        self._is_opened = False  # nothing is uploaded if the run is refused
        try:
            self._lock = lock_directory(home, "fedopt process")
        except RunDirectoryError as error:
            error.args = (str(error).replace(str(home), str(url)),)
            raise
        try:
            self._check_place()
            self._lease = Lease(self._remote, self.path)
            try:
                self._open()
            except BaseException:
                self._lease.release()
                raise
        except BaseException:
            os.close(self._lock)
            raise

    def _check_place(self) -> None:
        """Refuse a URL that holds something else, before anything is downloaded or written."""
        if foreign := find_foreign(self._remote.entries()):
            raise RemoteDirectoryError(
                f"{self.url} is not empty and not a run directory (it has {foreign!r}); choose another URL",
                url=str(self.url),
            )

    def _open(self) -> None:
        """Make the local copy equal to the remote directory, unless only the local one has later rounds.

        A copy is ahead if its uploads failed.
        """
        names = [name for name in select_run_files(self._remote.files()) if name != leases.NAME]
        complete = select_complete(names)
        if self._is_ahead(complete):
            self._log(f"{self.path} has later rounds than {self.url}; uploading them")
            self._uploaded = dict.fromkeys(names)
            return
        with disk_errors(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self._unsynced.unlink(missing_ok=True)
            self._remote.download(complete, self.path)
        files = self._local_files()
        self._uploaded = {name: files.get(name) for name in names}

    def _is_ahead(self, names: list[str]) -> bool:
        """Whether the local copy has rounds of the same run that were not uploaded."""
        newest = max(checkpoint_rounds(names), default=0)
        if not self._unsynced.exists() or _newest_round(self.path) <= newest:
            return False
        remote = self._remote.read("run.json")
        return remote is not None and _start(remote) == _start((self.path / "run.json").read_bytes())

    def upload(self) -> None:
        """Upload what has changed. If the URL cannot be reached, the next call tries again."""
        self._is_opened = True
        try:
            self._upload()
        except RemoteDirectoryError as error:
            # Later uploads begin with checkpoints, and without config.toml they would not belong to a run.
            if self._lease.is_lost or "config.toml" not in self._uploaded:
                raise
            self._log(f"warning: {error}; trying again after the next checkpoint")

    def _upload(self) -> None:
        self._lease.check()
        files = self._local_files()
        changed = [name for name, state in files.items() if self._uploaded.get(name) != state]
        self._unsynced.touch()
        for step in range(LAST_UPLOAD + 1):
            names = [name for name in changed if upload_step(name) == step]
            self._remote.upload(self.path, names)
            self._uploaded |= {name: files[name] for name in names}
        removed = [name for name in self._uploaded if name not in files and is_temporary(name)]
        self._remote.delete(removed)
        for name in removed:
            del self._uploaded[name]
        self._unsynced.unlink()

    def _local_files(self) -> dict[str, tuple[int, int]]:
        """The size and the time of every file, without hidden ones such as temporary files."""
        files = {}
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                status = path.stat()
                files[name.as_posix()] = (status.st_size, status.st_mtime_ns)
        return files

    def close(self, *, raise_errors: bool) -> None:
        """Upload the last changes and release the lease. Log a failure if `raise_errors` is not set."""
        try:
            if not self._is_opened:
                return
            self._upload()
        except RemoteDirectoryError as error:
            if self._lease.is_lost:
                if raise_errors:
                    raise
                return
            message = f"{error}; the run is in {self.path}: repeat the command on this machine to upload it"
            if raise_errors:
                raise UploadError(message, url=str(self.url), path=self.path) from error
            self._log(f"warning: {message}")
        finally:
            self._lease.release()
            os.close(self._lock)


def _start(run_json: bytes) -> object:
    """The time at which a run began, which distinguishes it from an earlier one at the same URL."""
    try:
        document = parse_json(run_json)
    except ValueError:
        return None
    return document.get("started") if isinstance(document, dict) else None


def _newest_round(path: Path) -> int:
    return max(checkpoints.rounds(path / "checkpoints"), default=0)
