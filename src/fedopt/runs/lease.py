"""The lease of a run at a URL: at most one process writes to it.

Object stores have no locks. The process that writes a run owns `lease.json` and renews it every minute. A
process on another machine may take the lease after five minutes without renewal. The owner checks the lease
before every upload and stops if it has lost it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fedopt.documents import read_regular_file
from fedopt.errors import FedoptError, RemoteDirectoryError
from fedopt.remote.directory import RemoteDirectory

NAME = "lease.json"
SECONDS = 300  # that a lease is valid without renewal
RENEWAL_SECONDS = 60
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Document(BaseModel):
    """The content of lease.json."""

    model_config = ConfigDict(strict=True)

    token: str  # random
    host: str
    place: str = ""  # distinguishes machines with the same host name
    process: int
    directory: str  # the local copy of the run
    expires: float  # seconds since 1970

    @property
    def is_valid(self) -> bool:
        return self.expires > time.time()


class Lease:
    """The right of this process to write a run. A thread renews it until it is released."""

    def __init__(self, remote: RemoteDirectory, directory: Path) -> None:
        """Take the lease. `directory` is the local copy, which this process has locked."""
        self._remote = remote
        self._token = secrets.token_hex(16)
        self._directory = directory
        self.is_lost = False
        # A process of this machine with the same local copy has ended, because the copy is locked here.
        self._place = _identify_place(directory)
        here = (socket.gethostname(), self._place, str(directory))
        owner = _read(remote)
        if owner is not None and owner.is_valid and (owner.host, owner.place, owner.directory) != here:
            until = datetime.fromtimestamp(owner.expires).astimezone().strftime("%H:%M:%S")
            raise RemoteDirectoryError(
                f"{remote.url} is in use by process {owner.process} on {owner.host}; wait for it, or until "
                f"{until} if it has died, or use `fedopt resume {remote.url} --take-over`",
                url=str(remote.url),
            )
        self._write()
        self.check()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="fedopt-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise an error if another process has taken the lease."""
        owner = _read(self._remote)
        if self.is_lost or owner is None or owner.token != self._token:
            self.is_lost = True
            by = "another process" if owner is None else f"process {owner.process} on {owner.host}"
            raise RemoteDirectoryError(
                f"{self._remote.url} was taken over by {by}; this process stops writing to it",
                url=str(self._remote.url),
            )

    def release(self) -> None:
        """Stop renewing. Delete the lease if this process still has it."""
        self._released.set()
        self._thread.join()
        with suppress(FedoptError):
            self.check()
            self._remote.delete([NAME])

    def _renew(self) -> None:
        while not self._released.wait(RENEWAL_SECONDS):
            with suppress(FedoptError):  # the next upload reports a lost lease or an unreachable host
                self.check()
                self._write()

    def _write(self) -> None:
        document = _Document(
            token=self._token,
            host=socket.gethostname(),
            place=self._place,
            process=os.getpid(),
            directory=str(self._directory),
            expires=time.time() + SECONDS,
        )
        self._remote.write(NAME, document.model_dump_json(indent=2).encode())


def _identify_place(directory: Path) -> str:
    """Return an id of this start of the machine and of the file system that holds `directory`.

    Copies of an image and containers may have the same host name and the same path.
    """
    try:
        start = _BOOT_ID.read_text().strip()
    except OSError:  # not Linux
        start = f"{uuid.getnode():012x}"
    try:
        status = os.stat(directory.parent)
    except OSError:
        return start
    return f"{start}:{status.st_dev}:{status.st_ino}"


def remove_lease(remote: RemoteDirectory) -> None:
    """Delete the lease of another process, which stops before its next upload."""
    if remote.read(NAME) is not None:
        remote.delete([NAME])


def has_valid_lease(run: Path) -> bool:
    """Whether a process was writing the run when this local copy was downloaded."""
    try:
        return _Document.model_validate_json(read_regular_file(run / NAME)).is_valid
    except (OSError, ValidationError):
        return False


def _read(remote: RemoteDirectory) -> _Document | None:
    """Return the lease. A damaged one counts as none."""
    content = remote.read(NAME)
    try:
        return None if content is None else _Document.model_validate_json(content)
    except ValidationError:
        return None
