"""Stores by name: the default directory of a dataset, and the value of `--data`."""

from __future__ import annotations

import os
from pathlib import Path

from fedopt.cache import data_directory
from fedopt.data.store.stored import Store, is_store, open_store
from fedopt.errors import DataError
from fedopt.remote.location import is_url, parse_location


def store_directory(name: str) -> Path:
    """Return the default directory of a dataset's store.

    Args:
        name: the dataset, as in `fedopt data list`.

    Returns:
        The directory, which need not exist.

    Examples:
        >>> store_directory("emnist").name
        'emnist'
    """
    return data_directory() / "stores" / name


def data_source(text: str) -> str:
    """Resolve the value of `--data`: "synthetic", a store's directory or URL, or the name of a dataset.

    Return "synthetic", or the directory or URL of the store, which is the form in the configuration.
    """
    if text == "synthetic" or is_store(Path(text)):
        return text
    if is_url(text):
        open_store(text)
        return str(parse_location(text))
    return str(find_store(text).directory)


def find_store(name_or_directory: str, *, read_all: bool = False) -> Store:
    """Open a store by its directory or URL, or by the name of the dataset; see `open_store`."""
    if is_url(name_or_directory):
        return open_store(name_or_directory, read_all=read_all)
    directory = Path(name_or_directory)
    if is_store(directory):
        return open_store(directory, read_all=read_all)
    by_name = store_directory(name_or_directory)
    if os.sep not in name_or_directory and is_store(by_name):
        return open_store(by_name, read_all=read_all)
    raise DataError(
        f"{name_or_directory!r} is neither an imported dataset nor the directory of one; see "
        "`fedopt data list`, then run `fedopt data get NAME` or `fedopt data import NAME PATH`",
        path=directory,
    )
