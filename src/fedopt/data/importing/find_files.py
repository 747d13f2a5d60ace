"""Finding the files of a dataset: what a path holds, recognised by content, with archives unpacked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedopt.data.readers import archives
from fedopt.data.readers.base import File
from fedopt.errors import UserError
from fedopt.files import Log, no_log

HEAD = 512
MAX_FILES = 100_000
MAX_DEPTH = 2  # an archive of compressed files, and no further

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
    (b"\x80\x02", "pickle"),
    (b"\x80\x03", "pickle"),
    (b"\x80\x04", "pickle"),
)


def recognise(path: Path) -> str:
    """What a file is, by its first bytes; names count only where bytes cannot tell."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if path.suffix == ".bin":
        return "binary"  # CIFAR's records begin with a label, so any first byte is possible
    for magic, kind in MAGIC:
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return "tar"
    if head.lstrip()[:1] == b"{":
        return "json"
    return "binary" if b"\0" in head or not head else "text"


def plain(path: Path) -> File:
    """A file that is not inside an archive."""
    return File(path, str(path), recognise(path), path)


def gather(paths: Sequence[Path], unpack_to: Path, log: Log = no_log) -> list[File]:
    """The files at `paths`, with those inside archives that were named; archives in directories stay shut."""
    found: list[File] = []
    for path in paths:
        if path.is_dir():
            found += list_directory(path)
        elif path.exists():
            found.append(plain(path))
        else:
            raise UserError(f"{path} does not exist; give a file, a directory or an archive")
    named = {path for path in paths if path.is_file()}
    return [
        inner for file in found for inner in (expand(file, unpack_to, log) if file.path in named else [file])
    ]


def expand(file: File, unpack_to: Path, log: Log = no_log) -> list[File]:
    """The file itself, or what is in it."""
    if file.kind not in archives.KINDS:
        return [file]
    log(f"unpacking {file.shown}")
    return _expand(file, unpack_to, archives.Budget(file), MAX_DEPTH)


def _expand(file: File, unpack_to: Path, budget: archives.Budget, depth: int) -> list[File]:
    if file.kind not in archives.KINDS or depth == 0:
        return [file]
    to = unpack_to / str(sum(1 for _ in unpack_to.iterdir()) if unpack_to.exists() else 0)
    members = [
        File(path, shown, recognise(path), file.origin) for path, shown in archives.unpack(file, to, budget)
    ]
    return [inner for member in members for inner in _expand(member, unpack_to, budget, depth - 1)]


def list_directory(directory: Path) -> list[File]:
    """All files below a directory, without hidden ones and without following links to directories."""
    found = []
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                found.append(plain(path))
        if len(found) > MAX_FILES:
            raise UserError(f"{directory} holds more than {MAX_FILES:,} files; name the ones to import")
    return found


def fingerprint(path: Path) -> dict[str, Any]:
    """A source file for the manifest: its name, checksum and size."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": path.name, "sha256": digest, "bytes": path.stat().st_size}
