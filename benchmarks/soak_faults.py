"""Faults that `soak.py` injects: a full, read-only or slow disk, clocks that jump, and bits that flip."""

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


def flip_bit(directory: Path, generator: random.Random, keep_times: bool = False) -> str:
    """Flip one bit of a random file, as a failing disk does; with `keep_times`, its times do not change."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.stat().st_size]
    file = generator.choice(files)
    before, data = file.stat(), bytearray(file.read_bytes())
    bit = generator.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)
    if keep_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"bit {bit} of {file.relative_to(directory)} was flipped"
