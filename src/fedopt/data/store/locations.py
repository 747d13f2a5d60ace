"""Where downloads and imported data are kept, by the platform's convention; FEDOPT_DATA overrides it."""

from __future__ import annotations

import os
from pathlib import Path

from fedopt.data.store.stored import Store, is_store, open_store
from fedopt.errors import UserError


def data_directory() -> Path:
    """The directory of everything that `fedopt data` keeps."""
    if chosen := os.environ.get("FEDOPT_DATA"):
        return Path(chosen).expanduser().absolute()
    import pooch

    return Path(pooch.os_cache("fedopt"))


def store_directory(name: str) -> Path:
    """Where a dataset is imported to unless another directory is named."""
    return data_directory() / "stores" / name


def data_source(text: str) -> str:
    """What `--data` names, as the configuration holds it: "synthetic", or the directory of a store.

    A dataset's name stands for the store that `fedopt data get` or `import` made of it.
    """
    if text == "synthetic" or is_store(Path(text)):
        return text
    return str(find_store(text).directory)


def find_store(name_or_directory: str) -> Store:
    """The store of a dataset by name, or in a directory."""
    directory = Path(name_or_directory)
    if is_store(directory):
        return open_store(directory)
    by_name = store_directory(name_or_directory)
    if os.sep not in name_or_directory and is_store(by_name):
        return open_store(by_name)
    raise UserError(
        f"{name_or_directory!r} is neither an imported dataset nor a directory of one; see "
        "`fedopt data list`, then `fedopt data get NAME` or `fedopt data import NAME PATH`"
    )
