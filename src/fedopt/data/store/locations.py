"""Default directories of downloads and stores. The environment variable FEDOPT_DATA overrides them."""

from __future__ import annotations

import os
from pathlib import Path

from fedopt.data.store.stored import Store, is_store, open_store
from fedopt.errors import DataError


def data_directory() -> Path:
    """Return the directory of all downloads and stores."""
    if directory := os.environ.get("FEDOPT_DATA"):
        return Path(directory).expanduser().absolute()
    import pooch

    return Path(pooch.os_cache("fedopt"))


def store_directory(name: str) -> Path:
    """Return the default directory of a dataset's store."""
    return data_directory() / "stores" / name


def data_source(text: str) -> str:
    """Resolve the value of `--data`: "synthetic", a store's directory, or the name of an imported dataset.

    Return "synthetic" or the directory of the store, which is the form in the configuration.
    """
    if text == "synthetic" or is_store(Path(text)):
        return text
    return str(find_store(text).directory)


def find_store(name_or_directory: str) -> Store:
    """Open a store by its directory or by the name of the dataset."""
    directory = Path(name_or_directory)
    if is_store(directory):
        return open_store(directory)
    by_name = store_directory(name_or_directory)
    if os.sep not in name_or_directory and is_store(by_name):
        return open_store(by_name)
    raise DataError(
        f"{name_or_directory!r} is neither an imported dataset nor the directory of one; see "
        "`fedopt data list`, then run `fedopt data get NAME` or `fedopt data import NAME PATH`",
        path=directory,
    )
