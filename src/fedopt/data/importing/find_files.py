"""List the files of a path, recognise their formats by content, and unpack archives."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedopt.data.readers import archives
from fedopt.data.readers.base import SourceFile
from fedopt.data.readers.limits import MAX_DEPTH, MAX_FILES, Budget
from fedopt.errors import DataError
from fedopt.files import Log, no_log

HEAD = 512
UNREADABLE = "unreadable"

MAGIC = (
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"SQLite format 3\0", "sqlite"),
    (b"PAR1", "parquet"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "lzma"),
    (b"\x5d\0\0", "lzma"),
    *((bytes([0x80, protocol]), "pickle") for protocol in range(2, 6)),
)


def recognise_format(path: Path) -> str:
    """Return the format of a file, from its first bytes."""
    if not path.is_file():  # opening a named pipe would wait for a writer
        raise DataError(f"{path} is not a regular file; give a file, a directory or an archive", path=path)
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", path=path) from None
    if path.suffix == ".bin":
        return "binary"  # CIFAR's records start with a label, so the first byte can have any value
    for magic, name in MAGIC:
        if head.startswith(magic):
            return name
    if head[257:262] == b"ustar":
        return "tar"
    if head.lstrip()[:1] == b"{":
        return "json"
    if not head:
        return "empty"
    return "binary" if b"\0" in head else "text"


def source_file(path: Path, budget: Budget) -> SourceFile:
    """Describe a file that is not inside an archive, and add its size to the budget of the import."""
    format = recognise_format(path)
    budget.add_file(path.stat())
    return SourceFile(path, str(path), format, path, path.absolute(), budget)


def list_files(paths: Sequence[Path], unpack_to: Path, budget: Budget, log: Log = no_log) -> list[SourceFile]:
    """Return the files at `paths`. Archives are unpacked if `paths` names them, not inside directories."""
    files: list[SourceFile] = []
    for path in paths:
        if path.is_dir():
            files += list_directory(path, budget, log)
        elif path.exists():
            files += unpack_archive(source_file(path, budget), unpack_to, log)
        else:
            message = f"{path} does not exist; give a file, a directory or an archive"
            raise DataError(message, path=path)
    return files


def unpack_archive(file: SourceFile, unpack_to: Path, log: Log = no_log) -> list[SourceFile]:
    """Return the files inside an archive, or the file itself if it is not an archive."""
    if file.format not in archives.FORMATS:
        return [file]
    log(f"unpacking {file.display}")
    return _unpack(file, unpack_to, MAX_DEPTH)


def _unpack(file: SourceFile, unpack_to: Path, depth: int) -> list[SourceFile]:
    if file.format not in archives.FORMATS or depth == 0:
        return [file]
    to = unpack_to / uuid.uuid4().hex
    members = [
        SourceFile(path, display, recognise_format(path), file.origin, location, file.budget)
        for path, display, location in archives.unpack(file, to)
    ]
    return [inner for member in members for inner in _unpack(member, unpack_to, depth - 1)]


def list_directory(directory: Path, budget: Budget, log: Log = no_log) -> list[SourceFile]:
    """Return all files below a directory. Hidden files and links to directories are skipped.

    A file that cannot be read has the format UNREADABLE: it may have nothing to do with the dataset. For the
    same reason, a directory that cannot be read is reported to `log` and left out.
    """

    def report(error: OSError) -> None:
        log(f"left out {error.filename}, which cannot be read: {error.strerror}")

    files = []
    for parent, folders, names in os.walk(directory, onerror=report):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith("."):
                continue
            try:
                if path.is_file():
                    files.append(source_file(path, budget))
            except (DataError, OSError):  # OSError: the names of the directory can be read, its files cannot
                files.append(SourceFile(path, str(path), UNREADABLE, path, path.absolute(), budget))
        if len(files) > MAX_FILES:
            message = f"{directory} holds more than {MAX_FILES:,} files; name the files to import"
            raise DataError(message, path=directory)
    return files


def fingerprint(file: SourceFile) -> dict[str, Any]:
    """Return name, checksum and size of the user's file, for the manifest."""
    path = file.origin
    size = path.stat().st_size
    file.reserve(size)
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"file": path.name, "sha256": digest, "bytes": size}
