"""Download a store from a URL, once per content."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

from fedopt.cache import data_directory
from fedopt.data.store.checks import check_files, sha256
from fedopt.data.store.columns import MANIFEST
from fedopt.data.store.manifest import read_manifest
from fedopt.errors import DataError, RemoteDirectoryError
from fedopt.files import disk_errors, replace_directory, temporary_directory, write_atomically
from fedopt.remote.directory import RemoteDirectory
from fedopt.remote.location import RemoteUrl

MAX_MANIFEST_BYTES = 1 << 26


def download_store(url: RemoteUrl) -> Path:
    """Return the local copy of a store. Download it unless an intact copy with the same manifest exists.

    The checksum of the manifest is part of the directory's name, so a changed store is downloaded again. No
    more bytes are read than the manifest lists, and a copy that differs from it is not kept.
    """
    remote = RemoteDirectory(url)
    manifest = _read_manifest(remote)
    digest = hashlib.sha256(manifest).hexdigest()
    target = data_directory() / "stores" / f"{url.digest}-{digest[:16]}"
    if _is_intact(target):
        return target
    with temporary_directory(target) as scratch:
        if not _is_intact(target):  # another process may have finished it
            content = scratch / "store"
            content.mkdir()
            write_atomically(content / MANIFEST, manifest)
            listed = _read_listed(content / MANIFEST, url)
            for name, size in listed["files"].items():
                _download(remote, name, size, listed["sha256"].get(name), content / name)
            replace_directory(target, content)
    return target


def _read_manifest(remote: RemoteDirectory) -> bytes:
    manifest = io.BytesIO()
    try:
        remote.copy(MANIFEST, manifest, MAX_MANIFEST_BYTES)
    except RemoteDirectoryError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise DataError(
            f"{remote.url} holds no imported data ({MANIFEST} not found); create it with `fedopt data import "
            "NAME PATH --to DIR` and copy DIR there",
            path=str(remote.url),
        ) from None
    return manifest.getvalue()


def _download(remote: RemoteDirectory, name: str, size: int, checksum: str | None, path: Path) -> None:
    """Download a file that must have `size` bytes and this SHA-256, if it is known."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            remote.copy(name, file, size)
            actual = file.tell()
    if actual != size or checksum not in (None, sha256(path)):
        what = f"{actual:,} bytes, but the manifest lists {size:,}" if actual != size else "changed (SHA-256)"
        why = f"has {what}; copy the store there again"
        raise DataError(f"{remote.url}/{name} {why}", path=f"{remote.url}/{name}")


def _is_intact(copy: Path) -> bool:
    """Whether all files of a local copy are those of its manifest."""
    try:
        check_files(copy, read_manifest(copy / MANIFEST))
        return True
    except (OSError, ValueError, DataError):
        return False


def _read_listed(manifest: Path, url: RemoteUrl) -> dict[str, Any]:
    """Return a manifest. Names of files outside the store are rejected."""
    try:
        listed = read_manifest(manifest)
    except ValueError as error:
        raise DataError(
            f"{url}/{MANIFEST} is damaged: {error}; import the data again", path=str(url)
        ) from None
    for name in listed["files"]:
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{url}/{MANIFEST} lists {name!r}, which is not inside the store", path=str(url))
    return listed
