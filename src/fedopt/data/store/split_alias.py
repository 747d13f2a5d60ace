"""Use another split of a store as its test split."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedopt.data.store.columns import MANIFEST
from fedopt.data.store.stored import Store
from fedopt.files import disk_errors


@contextmanager
def with_test_split(store: Store, split: str) -> Iterator[Path]:
    """Create a temporary store of links in which `split` of `store` is the test split.

    Tasks have only the splits train and test. This evaluates a third split, such as Stack Overflow's heldout
    users, in the same way, also in worker processes.
    """
    store.split(split)  # raises an error if it does not exist
    originals = {"train": "train", "test": split}
    manifest = {
        **store.manifest,
        "splits": {alias: store.manifest["splits"][name] for alias, name in originals.items()},
        "files": {
            f"{alias}/{file.removeprefix(f'{name}/')}": size
            for alias, name in originals.items()
            for file, size in store.manifest["files"].items()
            if file.startswith(f"{name}/")
        },
        "sha256": {},  # `store` has been checked
        "checksum": "",
    }
    with disk_errors(Path(tempfile.gettempdir())):
        scratch = tempfile.TemporaryDirectory(prefix="fedopt-")
    with scratch as path:
        directory = Path(path)
        with disk_errors(directory):
            for alias, name in originals.items():
                (directory / alias).symlink_to((store.directory / name).absolute())
            for text in store.manifest.get("texts", []):
                (directory / text).symlink_to((store.directory / text).absolute())
            (directory / MANIFEST).write_text(json.dumps(manifest))
        yield directory
