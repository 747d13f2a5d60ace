"""A real disk of a few pages, and a file that fills it."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(path: Path, kilobytes: int) -> Iterator[Path]:
    """Mount a disk of this size at `path`. Skip the test where mounting is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a full disk needs the permission to mount one")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(directory: Path) -> Path:
    """Write a file until the disk is full, and return it."""
    file = directory / ".filler"
    with open(file, "wb", buffering=0) as filler:
        while True:
            try:
                filler.write(b"\0" * 4096)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return file
