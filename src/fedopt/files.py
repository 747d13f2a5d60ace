"""Files that are whole or not there: written aside, flushed to the disk, then renamed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedopt.errors import RunError, UserError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content` in one step; on failure the old file stays and nothing is left over."""
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            with open(aside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """Make a file, or the renames and new files of a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_directory(path: Path, user: str) -> int:
    """Make `path` and lock it for this process; closing the descriptor, or the process's end, frees it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}; choose another --out") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UserError(f"{path} is in use by another {user}; wait for it or choose another --out") from error
    return descriptor


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A disk that is full or may not be written ends with one line instead of a traceback."""
    try:
        yield
    except PermissionError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another directory") from error
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
