"""Download a store from a URL, once per content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedopt.cache import data_directory
from fedopt.data.store.columns import MANIFEST
from fedopt.data.store.manifest import read_manifest
from fedopt.errors import DataError
from fedopt.files import replace_directory, temporary_directory, write_atomically
from fedopt.remote.directory import RemoteDirectory
from fedopt.remote.location import RemoteUrl


def download_store(url: RemoteUrl) -> Path:
    """Return the local copy of a store. Download it unless a copy with the same manifest exists.

    The checksum of the manifest is part of the directory's name, so a changed store is downloaded again.
    `open_store` checks the sizes of all files.
    """
    remote = RemoteDirectory(url)
    manifest = remote.read(MANIFEST)
    if manifest is None:
        raise DataError(
            f"{url} holds no imported data ({MANIFEST} not found); create it with `fedopt data import NAME "
            "PATH --to DIR` and copy DIR there",
            path=str(url),
        )
    digest = hashlib.sha256(manifest).hexdigest()
    target = data_directory() / "stores" / f"{url.digest}-{digest[:16]}"
    if (target / MANIFEST).is_file():
        return target
    with temporary_directory(target) as scratch:
        if not (target / MANIFEST).is_file():  # another process may have finished it
            content = scratch / "store"
            content.mkdir()
            write_atomically(content / MANIFEST, manifest)
            remote.download(_listed_files(content / MANIFEST, url), content)
            replace_directory(target, content)
    return target


def _listed_files(manifest: Path, url: RemoteUrl) -> list[str]:
    """The files that a manifest lists. Refuse names outside of the store."""
    try:
        names = list(read_manifest(manifest)["files"])
    except ValueError as error:
        raise DataError(
            f"{url}/{MANIFEST} is damaged: {error}; import the data again", path=str(url)
        ) from None
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{url}/{MANIFEST} lists {name!r}, which is not inside the store", path=str(url))
    return names
