"""Files that are whole or not there: written aside, flushed to the disk, then renamed."""

from __future__ import annotations

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


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A disk that is full or may not be written ends with one line instead of a traceback."""
    try:
        yield
    except PermissionError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another directory") from error
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
