"""RUN/metrics.jsonl, opened for writing. A line is complete or absent, also if the disk is full."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedopt.errors import RunDirectoryError
from fedopt.files import disk_errors, open_without_links

NAME = "metrics.jsonl"


class MetricsFile:
    """Appends lines to the metrics of a run."""

    def __init__(self, run: Path, length: int) -> None:
        """Open the file and remove everything after the first `length` bytes, which a checkpoint records."""
        self.path = run / NAME
        with disk_errors(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
            self._descriptor = open_without_links(str(self.path), flags)
        try:
            with disk_errors(self.path):
                self._truncate(run, length)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _truncate(self, run: Path, length: int) -> None:
        entry = os.fstat(self._descriptor)
        if not stat.S_ISREG(entry.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if entry.st_size < length:
            raise RunDirectoryError(
                f"{self.path} has {entry.st_size} bytes and its checkpoint expects {length}; restore it, or "
                f"remove {run} to start again",
                path=run,
            )
        self.removed = entry.st_size - length
        self.length = length
        os.ftruncate(self._descriptor, length)

    def append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, allow_nan=False).encode() + b"\n"
        with disk_errors(self.path):
            try:
                written = 0
                while written < len(data):  # a nearly full disk accepts a part
                    written += os.pwrite(self._descriptor, data[written:], self.length + written)
            except OSError:
                os.ftruncate(self._descriptor, self.length)
                raise
        self.length += len(data)

    def sync(self) -> None:
        with disk_errors(self.path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
