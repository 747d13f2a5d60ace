"""Faults of the machine that `soak.py` injects: a full, read-only or slow disk, and clocks that jump."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_YEAR = 365 * 86_400


class Disk:
    """A real file system of a few megabytes, if mounting is allowed; otherwise a plain directory."""

    def __init__(self, path: Path, megabytes: int = 16) -> None:
        self.path = path
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
        self.is_mounted = subprocess.run(command, capture_output=True).returncode == 0

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=True)

    def fill(self) -> None:
        """Leave no free page."""
        assert self.is_mounted
        with suppress(OSError), open(self.path / ".filler", "wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65_536)
        with suppress(OSError), open(self.path / ".filler", "ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)

    def free(self) -> None:
        (self.path / ".filler").unlink(missing_ok=True)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def _remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.path)], check=True, capture_output=True)


def slow_disk(generator: random.Random) -> None:
    """Delay the calls that make files durable, in this process. Kills then fall between these calls."""
    for name in ("fsync", "rename", "replace", "unlink"):
        setattr(os, name, _delayed(getattr(os, name), generator))


def _delayed(call: Callable[..., Any], generator: random.Random) -> Callable[..., Any]:
    def delayed(*arguments: Any, **options: Any) -> Any:
        time.sleep(generator.uniform(0, 0.02))
        return call(*arguments, **options)

    return delayed


def jumping_clock(directory: Path, generator: random.Random) -> None:
    """Let the clock of this process jump by up to a year, and give all files times of the past or future."""
    now = time.time
    time.time = lambda: now() + generator.uniform(-_YEAR, _YEAR)  # type: ignore[assignment]
    for path in directory.rglob("*"):
        when = now() + generator.uniform(-_YEAR, _YEAR)
        with suppress(OSError):
            os.utime(path, (when, when))
