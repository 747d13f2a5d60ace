"""Atomic files and directories, and the file lock.

A file or directory is first written under a temporary name in the same parent directory and then renamed.
A reader therefore sees the old content or the complete new content, also after a crash. Temporary names are
random, and files are never opened through a symbolic link, because other users may write to the directory.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedopt.documents import parse_json, read_regular_file
from fedopt.errors import DiskError, RunDirectoryError

__all__ = ["locked_directory", "write_atomically"]

Log = Callable[[str], None]
_ATTEMPTS, _SECONDS_BETWEEN_ATTEMPTS = 10, 0.02  # to lock a directory


def no_log(message: str) -> None:
    """Discard a message."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file in one step. If writing fails, the old file remains.

    Args:
        path: the file.
        content: bytes, or a text. Characters without a UTF-8 encoding, as in file names, are escaped.

    Returns:
        None.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as directory:
        ...     write_atomically(Path(directory) / "numbers.csv", "round,loss")
    """
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    temporary = temporary_path(path)
    with disk_errors(path):
        try:
            with open(temporary, "xb", opener=open_without_links) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def temporary_path(path: Path) -> Path:
    """Return a random name beside `path` that ends with ".tmp"."""
    return _hidden(path, f"{secrets.token_hex(8)}.tmp")


def open_without_links(path: str, flags: int) -> int:
    """Open a file, but not through a symbolic link. Pass this function as the `opener` of `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert an `OSError` into an error of one line that names `path`."""
    try:
        yield
    except PermissionError as error:
        raise RunDirectoryError(
            f"cannot write {path}: {error.strerror}; choose another directory", path=path
        ) from error
    except OSError as error:
        raise DiskError(f"cannot write {path}: {_describe(error)}", path=path) from error


def _describe(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return f"{error.filename} is a symbolic link; remove it"
    return error.strerror or str(error)


# -- locks


def _acquire_lock(path: Path, on_wait: Callable[[], None] | None = None) -> int:
    """Lock the file `path` and return its descriptor. Closing it, or the end of the process, frees the lock.

    If another process has the lock, call `on_wait` and wait. Without `on_wait`, raise BlockingIOError.
    """
    while True:
        descriptor = open_without_links(str(path), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if on_wait is None:
                os.close(descriptor)
                raise
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_same_file(descriptor, path):
            return descriptor
        os.close(descriptor)  # the previous owner removed the file; lock the new one


def _acquire_soon(path: Path) -> int:
    """Lock the file `path` without waiting for another owner; `is_locked` holds the lock for a moment."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _acquire_lock(path)
        except BlockingIOError:
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
    return _acquire_lock(path)


def is_locked(path: Path) -> bool:
    """Whether a process uses the directory `path`. Also true if this cannot be found out."""
    try:
        descriptor = os.open(path / ".lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def lock_directory(path: Path, user: str) -> int:
    """Create and lock the directory `path`, or raise an error if it is in use. Close the result to unlock.

    `user` names the kind of process in the error message, for example "sweep".
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        return _acquire_soon(path / ".lock")
    except BlockingIOError as error:
        raise RunDirectoryError(
            f"{path} is in use by another {user}; wait for it or choose another directory", path=path
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write to {path}: {_describe(error)}; choose another directory", path=path
        ) from error


def check_directory(path: Path, kind: str, marker: str, leftovers: Collection[str] = ()) -> bool:
    """Refuse a directory with foreign files. Return whether it already holds a `kind`.

    `marker` is the file that identifies a `kind`, such as "sweep.json" for a sweep. `leftovers` are entries
    that an interrupted start may leave without the marker.
    """
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file, not a directory; choose another directory", path=path)
    if not path.is_dir():
        return False
    if (path / marker).exists():
        return True
    names = sorted(entry.name for entry in path.iterdir())
    foreign = [name for name in names if not name.startswith(".") and name not in leftovers]
    if foreign:
        raise RunDirectoryError(
            f"{path} is not empty and not a {kind} (it has {foreign[0]!r}); choose another directory",
            path=path,
        )
    return False


@contextmanager
def locked_directory(
    path: Path, kind: str, marker: str, content: Mapping[str, str], leftovers: Collection[str] = ()
) -> Iterator[None]:
    """Create and lock a directory for runs. Refuse it if it is in use, or holds anything else.

    Args:
        path: the directory.
        kind: what it holds, such as "sweep"; for messages.
        marker: the JSON file that identifies a `kind`. The caller writes it.
        content: values that an existing marker must have.
        leftovers: entries that an interrupted start may leave without the marker.

    Returns:
        A context manager that holds the lock.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as path, locked_directory(Path(path), "sweep", "sweep.json", {}):
        ...     pass
    """
    if check_directory(path, kind, marker, leftovers):
        file = path / marker
        try:
            document = parse_json(read_regular_file(file))
            recorded = {key: str(document[key]) for key in content}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(
                f"{file} is damaged ({error}); restore or remove it, or choose another directory", path=path
            ) from error
        for key, value in content.items():
            if recorded[key] != value:
                raise RunDirectoryError(
                    f"{path} holds a {kind} with {key} {recorded[key]}; choose another directory",
                    path=path,
                )
    lock = lock_directory(path, kind)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def locked(target: Path, log: Log = no_log) -> Iterator[None]:
    """Lock `target`, which need not exist, among processes. A second process waits."""
    lock_file = _hidden(target, "lock")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire_lock(lock_file, lambda: log(f"waiting for another process to finish {target}"))
    try:
        yield
    finally:
        lock_file.unlink(missing_ok=True)
        os.close(lock)


# -- directories


@contextmanager
def temporary_directory(target: Path, log: Log = no_log) -> Iterator[Path]:
    """Create a temporary directory beside `target` and remove it at the end. A second process waits.

    Directories that a killed process left behind are removed first.
    """
    with locked(target, log):
        with disk_errors(target):
            _clean_up(target)
            scratch = _hidden(target, f"importing-{secrets.token_hex(8)}")
            scratch.mkdir(mode=0o700)
        try:
            yield scratch
        finally:
            _remove(scratch)


def _remove(directory: Path) -> None:
    """Remove a directory, also if an interrupt arrives meanwhile."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _clean_up(target: Path) -> None:
    """Remove the temporary directories of a killed process. Call it with the lock of `target`."""
    for replaced in _siblings(target, "replaced-*"):
        if not target.exists():  # killed between the two renames of `replace_directory`
            os.rename(replaced, target)
    for leftover in [*_siblings(target, "importing-*"), *_siblings(target, "replaced-*")]:
        shutil.rmtree(leftover, ignore_errors=True)


def _siblings(target: Path, pattern: str) -> list[Path]:
    names = glob.escape(_hidden(target, "").name) + pattern
    return [path for path in target.parent.glob(names) if path.is_dir() and not path.is_symlink()]


def replace_directory(target: Path, new: Path) -> None:
    """Rename the complete directory `new` to `target` and remove the previous `target`."""
    with disk_errors(target):
        for directory, _, _ in os.walk(new):
            sync(Path(directory))
        old = _hidden(target, f"replaced-{secrets.token_hex(8)}")
        if target.exists():
            os.rename(target, old)
        os.rename(new, target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)


def _hidden(target: Path, purpose: str) -> Path:
    return target.parent / f".{target.name}.{purpose}"
