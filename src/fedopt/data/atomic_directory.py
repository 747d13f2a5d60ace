"""Directories that are whole or not there: built aside, one builder at a time, then renamed into place.

The scratch directory lies beside its target, so that the last step is a rename on one file system. A killed
builder leaves its scratch directory behind; the next one removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedopt.files import disk_errors, sync


def ignore(message: str) -> None:
    """Say nothing."""


@contextmanager
def locked(target: Path, say: Callable[[str], None] = ignore) -> Iterator[None]:
    """Hold `target` alone among processes; whoever comes second waits."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(
            _hidden(target, "lock"), lambda: say(f"waiting for another process to finish {target}")
        )
    try:
        yield
    finally:
        _release(lock, _hidden(target, "lock"))


@contextmanager
def building(target: Path, say: Callable[[str], None] = ignore) -> Iterator[Path]:
    """A scratch directory for `target`, removed at the end whatever happens; a second builder waits."""
    with locked(target, say):
        scratch = _hidden(target, "importing")
        with disk_errors(target):
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(_hidden(target, "replaced"), ignore_errors=True)
            scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def publish(built: Path, target: Path) -> None:
    """Move a finished directory into place, where it replaces what was there."""
    with disk_errors(target):
        for directory, _, _ in os.walk(built):
            sync(Path(directory))
        old = _hidden(target, "replaced")
        if target.exists():
            os.rename(target, old)
        os.rename(built, target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)


def _hidden(target: Path, what: str) -> Path:
    return target.parent / f".{target.name}.{what}"


def _acquire(path: Path, waiting: Callable[[], None]) -> int:
    """Hold the lock file; the kernel frees it when its holder dies."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # the holder before us removed the file; take the new one


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _release(descriptor: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)
