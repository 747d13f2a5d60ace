"""Untrusted archives: nothing is written outside the directory, and sizes are limited."""

from __future__ import annotations

import gzip
import shutil
import struct
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import publicfiles as files
import pytest
from damagedfiles import Make, scramble, truncate
from rejected import rejected_import

from fedopt.data.importing import find_files
from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import limits
from fedopt.data.readers.base import SourceFile, TableColumns, convert_errors
from fedopt.errors import DataError


def tar_with(member: tarfile.TarInfo, content: bytes = b"") -> Make:
    def make(d: Path) -> Path:
        with tarfile.open(d / "evil.tar.gz", "w:gz") as archive:
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
        return d / "evil.tar.gz"

    return make


def link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("fed_emnist_train.h5")
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def zip_with(name: str, mode: int = 0o100644) -> Make:
    def make(d: Path) -> Path:
        with zipfile.ZipFile(d / "evil.zip", "w") as archive:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            archive.writestr(member, b"/etc/passwd")
        return d / "evil.zip"

    return make


def bomb_tar(d: Path) -> Path:
    with tarfile.open(d / "bomb.tar.bz2", "w:bz2") as archive:
        member = tarfile.TarInfo("fed_emnist_train.h5")
        member.size = limits.MIN_BYTES + 1
        with open("/dev/zero", "rb") as zeros:
            archive.addfile(member, zeros)
    return d / "bomb.tar.bz2"


def bomb_zip(d: Path) -> Path:
    with zipfile.ZipFile(d / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.h5", bytes(limits.MIN_BYTES + 1))
    data = (d / "bomb.zip").read_bytes()
    declared, actual = struct.pack("<I", 1000), struct.pack("<I", limits.MIN_BYTES + 1)
    (d / "bomb.zip").write_bytes(data.replace(actual, declared))  # the headers declare 1000 bytes
    return d / "bomb.zip"


def sparse_tar(d: Path) -> Path:
    """A member of half a gigabyte of holes, in GNU's sparse format 1.0: a map of no data, then nothing."""
    member = tarfile.TarInfo("fed_emnist_train.h5")
    content = b"0\n".ljust(512, b"\0")
    member.size = len(content)
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": str(1 << 29),
    }
    (d / "sparse.tar").write_bytes(member.tobuf(tarfile.PAX_FORMAT) + content + bytes(1024))
    return d / "sparse.tar"


UNSAFE: dict[str, Make] = {
    "tar: parent directory": tar_with(tarfile.TarInfo("../fed_emnist_train.h5"), b"x"),
    "tar: absolute path": tar_with(tarfile.TarInfo("/tmp/fed_emnist_train.h5"), b"x"),
    "tar: parent directory inside": tar_with(tarfile.TarInfo("a/../../b.h5"), b"x"),
    "tar: symbolic link": tar_with(link(tarfile.SYMTYPE)),
    "tar: hard link": tar_with(link(tarfile.LNKTYPE)),
    "tar: device": tar_with(link(tarfile.CHRTYPE)),
    "zip: parent directory": zip_with("../a.h5"),
    "zip: parent directory with backslash": zip_with("..\\a.h5"),
    "zip: drive letter": zip_with("C:\\a.h5"),
    "zip: symbolic link": zip_with("a.h5", 0o120777),
    "tar: decompression bomb": bomb_tar,
    "zip: decompression bomb": bomb_zip,
}
DAMAGED: dict[str, Make] = {
    "truncated tar": truncate(files.tar_bz2, "fed_emnist.tar.bz2", 0.6),
    "scrambled zip": scramble(files.zip_file, "emnist.zip"),
    "truncated LZMA": truncate(files.sqlite_lzma, "emnist_all.sqlite.lzma", 0.5),
    "scrambled LZMA": scramble(files.sqlite_lzma, "emnist_all.sqlite.lzma"),
}


@pytest.mark.parametrize("make", [*UNSAFE.values(), *DAMAGED.values()], ids=[*UNSAFE, *DAMAGED])
def test_unsafe_or_damaged_archive_is_rejected(places, make: Make) -> None:
    path = make(places.source)
    before = sorted(places.source.rglob("*"))
    error = rejected_import("emnist", path, places.to)
    assert error.path == path and error.client is None
    assert sorted(places.source.parent.rglob("*")) == sorted([*before, *places])


def test_holes_of_a_sparse_member_are_not_written(places) -> None:
    """They were not counted, because only the bytes of the archive are."""
    with pytest.raises(DataError) as caught:
        find_files.list_files([sparse_tar(places.source)], places.to, limits.Budget())
    assert caught.value.path == places.source / "sparse.tar"


def test_message_of_a_bomb_names_the_limit(places) -> None:
    error = rejected_import("emnist", bomb_tar(places.source), places.to)
    assert "67,108,864 bytes" in str(error) and "--limit-factor" in str(error)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_hidden_members_are_skipped(places, kind: str) -> None:
    """As macOS writes them: a hidden file of attributes beside each file."""
    files.leaf_directory(places.source / "leaf")
    for path in (places.source / "leaf").rglob("*.json"):
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7" + bytes(100))
    archive = shutil.make_archive(str(places.source / "leaf"), kind, places.source / "leaf")
    assert import_dataset("emnist", [Path(archive)], places.to / "store").is_new


def test_lack_of_memory_is_not_reported_as_damage() -> None:
    file = SourceFile(Path("a.tar"), "a.tar", "tar", Path("a.tar"), Path("a.tar"))
    with pytest.raises(DataError) as caught, convert_errors(file, (MemoryError,)):
        raise MemoryError
    assert "needs more memory" in str(caught.value) and caught.value.path == Path("a.tar")


def import_csv_of_zip(places, name: str, folder: str = "") -> bool:
    path = places.source / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        if folder:
            archive.writestr(folder, b"")
        archive.writestr(name, "client,label,a\nc,0,1\nc,1,2\n")
    options = ImportOptions(columns=TableColumns("client", "label"))
    return import_dataset("own", [path], places.to / "store", options).is_new


def test_zip_with_a_directory_of_windows_is_read(places) -> None:
    assert import_csv_of_zip(places, "dir\\t.csv", folder="dir\\")


def test_name_with_a_colon_is_read(places) -> None:
    assert import_csv_of_zip(places, "run 12:30/t.csv")


def test_compressed_file_without_a_stem_is_read(places) -> None:
    (places.source / ".gz").write_bytes(gzip.compress(b"client,label,a\nc,0,1\nc,1,2\n"))
    options = ImportOptions(columns=TableColumns("client", "label"))
    assert import_dataset("own", [places.source / ".gz"], places.to / "store", options).is_new


def test_encrypted_zip_is_not_called_damaged(places) -> None:
    path = places.source / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.csv", "client,label,a\nc,0,1\n")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1  # the flag in the directory of the archive
    path.write_bytes(content)
    error = rejected_import("own", path, places.to, columns=TableColumns("client", "label"))
    assert error.path == path and "is encrypted" in str(error) and "damaged" not in str(error)
