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
    A copy whose files do not have the sizes of the manifest is not kept.
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
            sizes = _listed_files(content / MANIFEST, url)
            remote.download(list(sizes), content)
            for name, size in sizes.items():
                if (actual := (content / name).stat().st_size) != size:
                    why = f"has {actual:,} bytes, but the manifest lists {size:,}; copy the store there again"
                    raise DataError(f"{url}/{name} {why}", path=f"{url}/{name}")
            replace_directory(target, content)
    return target


def _listed_files(manifest: Path, url: RemoteUrl) -> dict[str, int]:
    """Return the names and sizes of the files in a manifest. Names outside the store are rejected."""
    try:
        sizes: dict[str, int] = read_manifest(manifest)["files"]
    except ValueError as error:
        raise DataError(
            f"{url}/{MANIFEST} is damaged: {error}; import the data again", path=str(url)
        ) from None
    for name in sizes:
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{url}/{MANIFEST} lists {name!r}, which is not inside the store", path=str(url))
    return sizes
