"""Unpacking archives that are not trusted: nothing outside the directory, nothing too large.

A member with an absolute path, a `..`, or that is a link or a device is refused. What comes out of an archive
may be MAX_RATIO times its size, or MAX_SMALL bytes if that is more; images and text compress far less.
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
from typing import IO

from fedopt.data.readers.base import File, bad, damaged
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
KINDS = ("tar", "zip", *OPENERS)
ERRORS = (
    OSError,  # gzip and bzip2 report damage so
    EOFError,
    ValueError,
    RuntimeError,  # zip members with a password or an unknown compression
    lzma.LZMAError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
)
SUFFIXES = (".gz", ".bz2", ".xz", ".lzma", ".tgz", ".tbz2")


class Budget:
    """How many more bytes may come out of an archive."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.limit = self.left = max(MAX_SMALL, MAX_RATIO * file.path.stat().st_size)

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise bad(
                self.file.shown,
                f"unpacks to more than {self.limit:,} bytes ({MAX_RATIO} times its size), which no data set "
                "here does; unpack it yourself and import the directory if you trust it",
            )


def unpack(file: File, to: Path, budget: Budget) -> list[tuple[Path, str]]:
    """The files of an archive, under `to`, with the names to show; a compressed file holds one."""
    with disk_errors(to):
        to.mkdir(parents=True)
    if file.kind == "zip":
        return _unpack_zip(file, to, budget)
    if file.kind == "tar" or _holds_tar(file):
        return _unpack_tar(file, to, budget)
    name = file.path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    with _reading(file), OPENERS[file.kind](file.path) as stream:
        _copy(stream, to / name, budget)
    return [(to / name, f"{file.shown} ({name})")]


def _holds_tar(file: File) -> bool:
    with _reading(file), OPENERS[file.kind](file.path) as stream:
        return stream.read(512)[257:262] == b"ustar"


def _unpack_tar(file: File, to: Path, budget: Budget) -> list[tuple[Path, str]]:
    found = []
    with _reading(file), tarfile.open(file.path, "r:*") as archive:
        for at, member in enumerate(archive):
            if at >= MAX_MEMBERS:
                raise bad(file.shown, f"has more than {MAX_MEMBERS:,} members")
            target = _inside(file, to, member.name)
            if member.isdir():
                continue
            if not member.isfile():
                raise bad(file.shown, f"member {member.name!r} is a link or a device, which is not unpacked")
            stream = archive.extractfile(member)
            assert stream is not None  # it is a regular file
            with stream:
                _copy(stream, target, budget)
            found.append((target, f"{file.shown} ({member.name})"))
    return found


def _unpack_zip(file: File, to: Path, budget: Budget) -> list[tuple[Path, str]]:
    found = []
    with _reading(file), zipfile.ZipFile(file.path) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise bad(file.shown, f"has more than {MAX_MEMBERS:,} members")
        for member in members:
            target = _inside(file, to, member.filename)
            if member.is_dir():
                continue
            if (member.external_attr >> 16) & 0o170000 not in (0, 0o100000):
                raise bad(
                    file.shown, f"member {member.filename!r} is a link or a device, which is not unpacked"
                )
            with archive.open(member) as stream:
                _copy(stream, target, budget)
            found.append((target, f"{file.shown} ({member.filename})"))
    return found


def _inside(file: File, to: Path, name: str) -> Path:
    """Where a member goes; refused if that is not inside `to`."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in name:
        raise bad(
            file.shown, f"member {name!r} would be written outside the directory; the archive is refused"
        )
    target = to.joinpath(*parts)
    if target.is_file():
        raise bad(file.shown, f"member {name!r} comes twice")
    return target


def _copy(stream: IO[bytes] | BufferedIOBase, target: Path, budget: Budget) -> None:
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        out = open(target, "xb")
    try:
        while chunk := stream.read(CHUNK):
            budget.spend(len(chunk))
            with disk_errors(target):
                out.write(chunk)
    finally:
        with disk_errors(target):
            out.close()


@contextmanager
def _reading(file: File) -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise damaged(file.shown, str(error) or type(error).__name__) from None
