"""Unpack untrusted archives.

Members with an absolute path or `..`, links and devices are rejected. Hidden files are skipped, as in a
directory. The budget of the import limits the number of bytes.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from fedopt.data.readers.base import SourceFile, convert_errors, data_error
from fedopt.data.readers.limits import CountedStream, check_count, member_path
from fedopt.files import disk_errors

ENCRYPTED = 1  # flag of a zip member
CHUNK = 1 << 16  # bytes that are read at once

OPENERS: dict[str, Callable[[Path], BufferedIOBase]] = {
    "gzip": lambda path: gzip.open(path, "rb"),
    "bzip2": lambda path: bz2.open(path, "rb"),
    "lzma": lambda path: lzma.open(path, "rb"),
    "tar": lambda path: open(path, "rb"),
}
COMPRESSED = ("gzip", "bzip2", "lzma")  # a single file, or a tar archive
FORMATS = ("tar", "zip", *COMPRESSED)
ERRORS = (
    OSError,  # gzip and bzip2 raise it for damaged files
    EOFError,
    ValueError,
    RuntimeError,  # zip members with a password or an unknown compression
    MemoryError,  # a dictionary of LZMA, or a zip directory
    lzma.LZMAError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
)
SUFFIXES = (".gz", ".bz2", ".xz", ".lzma", ".tgz", ".tbz2")


def unpack(file: SourceFile, to: Path) -> list[tuple[Path, str, Path]]:
    """Unpack an archive or a compressed file into `to`.

    Return the path, the display name and the location of each file.
    """
    with disk_errors(to):
        to.mkdir(parents=True)
    if file.format == "zip":
        return _unpack_zip(file, to)
    if is_tar(file):
        return _unpack_tar(file, to)
    name = file.path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix) or name
    with convert_errors(file, ERRORS), OPENERS[file.format](file.path) as stream:
        _copy(CountedStream(file.reserve, stream), to / name)
    return [(to / name, f"{file.display} ({name})", file.location.with_name(name))]


def is_tar(file: SourceFile) -> bool:
    """Whether the file is a tar archive, which may be compressed."""
    if file.format not in COMPRESSED:
        return file.format == "tar"
    with convert_errors(file, ERRORS), OPENERS[file.format](file.path) as stream:
        return stream.read(512)[257:262] == b"ustar"


@contextmanager
def _open_tar(file: SourceFile) -> Iterator[Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]]:
    """Open an archive and return its members, each with the archive."""
    with OPENERS[file.format](file.path) as stream:
        counted = CountedStream(file.reserve, stream)
        with counted.header():  # reads the first member
            archive = tarfile.open(fileobj=cast(BinaryIO, counted), mode="r:")
        with archive:
            yield _read_members(archive, counted)


def _read_members(
    archive: tarfile.TarFile, stream: CountedStream
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    while True:
        with stream.header():
            member = archive.next()
        if member is None:
            return
        archive.members.clear()  # type: ignore[attr-defined]  # otherwise all headers stay in memory
        yield archive, member


def _unpack_tar(file: SourceFile, to: Path) -> list[tuple[Path, str, Path]]:
    unpacked = []
    with convert_errors(file, ERRORS), _open_tar(file) as members:
        for number, (archive, member) in enumerate(members):
            check_count(number + 1)
            if member.isdir() and PurePosixPath(member.name) == PurePosixPath("."):
                continue  # the directory itself: `tar -C DIR .`
            target = member_path(to, member.name)
            if member.isdir():
                continue
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is None or member.issparse():  # holes would be written without being counted
                raise _not_a_file(file, member.name)
            if _is_hidden(target, to):
                continue
            with stream:
                _copy(stream, target)
            unpacked.append(_member(file, to, target, member.name))
    return unpacked


def _unpack_zip(file: SourceFile, to: Path) -> list[tuple[Path, str, Path]]:
    unpacked = []
    with convert_errors(file, ERRORS), zipfile.ZipFile(file.path) as archive:
        members = archive.infolist()
        check_count(len(members))
        for member in members:
            target = member_path(to, member.filename)
            if member.filename.endswith(("/", "\\")):  # Windows programs may write backslashes
                continue
            if member.flag_bits & ENCRYPTED:
                raise data_error(file, "is encrypted; unpack it and import the directory")
            if (member.external_attr >> 16) & 0o170000 not in (0, 0o100000):
                raise _not_a_file(file, member.filename)
            if _is_hidden(target, to):
                continue
            with archive.open(member) as stream:
                _copy(CountedStream(file.reserve, stream), target)
            unpacked.append(_member(file, to, target, member.filename))
    return unpacked


def _member(file: SourceFile, to: Path, target: Path, name: str) -> tuple[Path, str, Path]:
    return target, f"{file.display} ({name})", file.location / target.relative_to(to)


def _is_hidden(target: Path, to: Path) -> bool:
    return any(part.startswith(".") for part in target.relative_to(to).parts)


def _not_a_file(file: SourceFile, member: str) -> Exception:
    return data_error(
        file, f"member {member[:100]!r} is a link, a device or a sparse file; the archive is rejected"
    )


def _copy(stream: IO[bytes] | CountedStream, target: Path) -> None:
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        output = open(target, "xb")
    try:
        while chunk := stream.read(CHUNK):
            with disk_errors(target):
                output.write(chunk)
    finally:
        with disk_errors(target):
            output.close()
