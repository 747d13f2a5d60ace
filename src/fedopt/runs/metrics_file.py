"""RUN/metrics.jsonl, opened for writing. A line is complete or absent, also if the disk is full."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedopt.errors import DiskError, RunDirectoryError
from fedopt.files import disk_errors, open_without_links

NAME = "metrics.jsonl"


class MetricsFile:
    """Appends lines to the metrics of a run."""

    def __init__(self, run: Path, length: int, sha256: str | None) -> None:
        """Open the file, whose first `length` bytes and their SHA-256 a checkpoint records."""
        self.path = run / NAME
        with disk_errors(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
            self._descriptor = open_without_links(str(self.path), flags)
        try:
            with disk_errors(self.path):
                self._verify(run, length, sha256)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _verify(self, run: Path, length: int, sha256: str | None) -> None:
        entry = os.fstat(self._descriptor)
        if not stat.S_ISREG(entry.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        self._digest = hashlib.sha256(os.pread(self._descriptor, length, 0))
        if entry.st_size < length or sha256 not in (None, self._digest.hexdigest()):
            raise RunDirectoryError(
                f"{self.path} does not have the {length} bytes that its checkpoint expects; restore it, or "
                f"remove {run} to start again",
                path=run,
            )
        self.length = length
        self.has_more = entry.st_size > length

    def truncate(self) -> None:
        """Remove everything after the part that the checkpoint records."""
        with disk_errors(self.path):
            os.ftruncate(self._descriptor, self.length)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def check(self) -> None:
        """Raise an error if another program has deleted, replaced or changed the open file."""
        with disk_errors(self.path):
            entry = os.fstat(self._descriptor)
            if not os.path.samestat(entry, os.lstat(self.path)) or entry.st_size != self.length:
                raise DiskError(f"{self.path} was replaced or changed while the run wrote it", path=self.path)

    def append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, allow_nan=False).encode() + b"\n"
        self.check()
        with disk_errors(self.path):
            try:
                written = 0
                while written < len(data):  # a nearly full disk accepts a part
                    written += os.pwrite(self._descriptor, data[written:], self.length + written)
            except OSError:
                os.ftruncate(self._descriptor, self.length)
                raise
        self.length += len(data)
        self._digest.update(data)

    def sync(self) -> None:
        with disk_errors(self.path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
