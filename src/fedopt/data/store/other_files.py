"""Keep a user's own files in the directory of a store when an import replaces the store."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from fedopt.data.store.columns import MANIFEST
from fedopt.errors import DataError
from fedopt.files import disk_errors


def keep_other_files(store: Path, new: Path) -> None:
    """Link or copy the files of the directory `store` that no import has written into the directory `new`."""
    if not store.exists():
        return
    written = _written_files(store)
    with disk_errors(store):
        for parent, folders, names in os.walk(store):
            links = [name for name in folders if Path(parent, name).is_symlink()]
            for name in [*names, *links]:
                path = Path(parent, name)
                relative = path.relative_to(store)
                if str(relative) not in written:
                    _keep(path, new / relative)


def _written_files(store: Path) -> set[str]:
    """Return the files of a store, according to its manifest or, if that is damaged, to their names."""
    try:
        manifest = json.loads((store / MANIFEST).read_bytes())
        return {MANIFEST, *manifest["files"]}
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        columns = {str(path.relative_to(store)) for path in store.glob("*/*.npy")}
        return {MANIFEST, "vocabulary.txt", "tags.txt", *columns}


def _keep(path: Path, new: Path) -> None:
    if os.path.lexists(new) or any(parent.is_file() for parent in new.parents):
        raise DataError(
            f"{path} was not written by an import, but the new store has a file of this name; move it away",
            path=path,
        )
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, new, follow_symlinks=False)
    except OSError:  # the file system has no hard links
        shutil.copy2(path, new, follow_symlinks=False)
