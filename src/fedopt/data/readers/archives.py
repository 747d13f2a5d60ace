"""Unpack untrusted archives.

Members with an absolute path or `..`, links and devices are rejected, and so are archives that unpack to more
than MAX_RATIO times their size (MAX_SMALL bytes for small archives). Images and text compress far less.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import IO

from fedopt.data.readers.base import SourceFile, convert_errors, data_error
from fedopt.files import disk_errors

MAX_RATIO = 100
MAX_SMALL = 64 << 20
MAX_MEMBERS = 100_000
CHUNK = 1 << 20

OPENERS: dict[str, Callable[[Path], BufferedIOBase]] = {
    "gzip": lambda path: gzip.open(path, "rb"),
    "bzip2": lambda path: bz2.open(path, "rb"),
    "lzma": lambda path: lzma.open(path, "rb"),
}
FORMATS = ("tar", "zip", *OPENERS)
ERRORS = (
    OSError,  # gzip and bzip2 raise it for damaged files
    EOFError,
    ValueError,
    RuntimeError,  # zip members with a password or an unknown compression
    lzma.LZMAError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
)
SUFFIXES = (".gz", ".bz2", ".xz", ".lzma", ".tgz", ".tbz2")


class SizeLimit:
    """Limits how many bytes an archive, with the archives inside it, may unpack to."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.limit = self.remaining = max(MAX_SMALL, MAX_RATIO * file.path.stat().st_size)

    def use(self, size: int) -> None:
        self.remaining -= size
        if self.remaining < 0:
            raise data_error(
                self.file,
                f"unpacks to more than {self.limit:,} bytes ({MAX_RATIO} times its size); if you trust it, "
                "unpack it yourself and import the directory",
            )


def unpack(file: SourceFile, to: Path, size_limit: SizeLimit) -> list[tuple[Path, str]]:
    """Unpack an archive or a compressed file into `to`. Return the path and the display name of each file."""
    with disk_errors(to):
        to.mkdir(parents=True)
    if file.format == "zip":
        return _unpack_zip(file, to, size_limit)
    if file.format == "tar" or _is_compressed_tar(file):
        return _unpack_tar(file, to, size_limit)
    name = file.path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    with convert_errors(file, ERRORS), OPENERS[file.format](file.path) as stream:
        _copy(stream, to / name, size_limit)
    return [(to / name, f"{file.display} ({name})")]


def _is_compressed_tar(file: SourceFile) -> bool:
    with convert_errors(file, ERRORS), OPENERS[file.format](file.path) as stream:
        return stream.read(512)[257:262] == b"ustar"


def _unpack_tar(file: SourceFile, to: Path, size_limit: SizeLimit) -> list[tuple[Path, str]]:
    unpacked = []
    with convert_errors(file, ERRORS), tarfile.open(file.path, "r:*") as archive:
        for number, member in enumerate(archive):
            _check_count(file, number + 1)
            target = _target(file, to, member.name)
            if member.isdir():
                continue
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is None:
                raise _not_a_file(file, member.name)
            with stream:
                _copy(stream, target, size_limit)
            unpacked.append((target, f"{file.display} ({member.name})"))
    return unpacked


def _unpack_zip(file: SourceFile, to: Path, size_limit: SizeLimit) -> list[tuple[Path, str]]:
    unpacked = []
    with convert_errors(file, ERRORS), zipfile.ZipFile(file.path) as archive:
        members = archive.infolist()
        _check_count(file, len(members))
        for member in members:
            target = _target(file, to, member.filename)
            if member.is_dir():
                continue
            if (member.external_attr >> 16) & 0o170000 not in (0, 0o100000):
                raise _not_a_file(file, member.filename)
            with archive.open(member) as stream:
                _copy(stream, target, size_limit)
            unpacked.append((target, f"{file.display} ({member.filename})"))
    return unpacked


def _check_count(file: SourceFile, members: int) -> None:
    if members > MAX_MEMBERS:
        raise data_error(file, f"has more than {MAX_MEMBERS:,} members")


def _not_a_file(file: SourceFile, member: str) -> Exception:
    return data_error(file, f"member {member!r} is a link or a device; the archive is rejected")


def _target(file: SourceFile, to: Path, name: str) -> Path:
    """Return the path of a member under `to`. Members outside `to` are rejected."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in name:
        raise data_error(file, f"member {name!r} lies outside the directory; the archive is rejected")
    target = to.joinpath(*parts)
    if target.is_file():
        raise data_error(file, f"has two members {name!r}")
    return target


def _copy(stream: IO[bytes] | BufferedIOBase, target: Path, size_limit: SizeLimit) -> None:
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        output = open(target, "xb")
    try:
        while chunk := stream.read(CHUNK):
            size_limit.use(len(chunk))
            with disk_errors(target):
                output.write(chunk)
    finally:
        with disk_errors(target):
            output.close()
