"""Compare the files of a store with its manifest: sizes always, SHA-256 once per machine and change.

The user's cache records the sizes and modification times with which the files of a store were last read. A
bit that changes without a new modification time, as on a failing disk, is found only by reading all files.
"""

from __future__ import annotations

import hashlib
import platform
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fedopt.cache import cache_directory
from fedopt.errors import DataError, FedoptError
from fedopt.files import locked, write_atomically


def check_files(directory: Path, manifest: Mapping[str, Any], *, read_all: bool = False) -> None:
    """Raise an error if a file differs from the manifest. A store of fedopt 0.2.0 has sizes only.

    Files are read if a size or modification time has changed since the last time, or with `read_all`. One
    process reads, others wait for it.
    """
    times = {name: _modified(directory / name, size) for name, size in manifest["files"].items()}
    place = f"{platform.node()}:{directory.resolve()}"
    record = cache_directory() / "verified" / hashlib.sha256(place.encode(errors="replace")).hexdigest()
    state = hashlib.sha256(repr((place, manifest["checksum"], times)).encode()).hexdigest()
    if not manifest["checksum"] or not read_all and _content(record) == state:
        return
    with ExitStack() as stack:
        with suppress(FedoptError):  # the cache cannot be written
            stack.enter_context(locked(record))
        if not read_all and _content(record) == state:
            return  # another process has read the files
        for name, expected in manifest["sha256"].items():
            if sha256(directory / name) != expected:
                raise damaged(directory / name, "its content has changed (SHA-256)")
        with suppress(FedoptError):
            write_atomically(record, state)


def sha256(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise inaccessible(path, error) from None


def _content(record: Path) -> str:
    try:
        return record.read_text(errors="replace")
    except OSError:
        return ""


def _modified(path: Path, size: int) -> int:
    """Return the modification time of a file that must have `size` bytes."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise damaged(path, str(error.strerror)) from None
    except (OSError, ValueError) as error:  # a name with a null byte
        raise inaccessible(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise damaged(path, "it is not a regular file")
    if status.st_size != size:
        raise damaged(path, f"it has {status.st_size} bytes, but {size} were written")
    return status.st_mtime_ns


def damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged: {' '.join(why.split())}; import the data again", path=path)


def inaccessible(path: Path, error: OSError | ValueError) -> DataError:
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    return DataError(f"cannot read {path}: {why}; check its permissions", path=path)
