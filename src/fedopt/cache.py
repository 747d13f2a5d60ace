"""The directory of downloads, stores, copies of remote directories and compiled code."""

from __future__ import annotations

import os
from pathlib import Path


def data_directory() -> Path:
    """Return the directory of all downloads and stores. The environment variable FEDOPT_DATA overrides it."""
    if directory := os.environ.get("FEDOPT_DATA"):
        return Path(directory).expanduser().absolute()
    return cache_directory()


def cache_directory() -> Path:
    """Return the directory of fedopt in the user's cache."""
    import platformdirs  # pooch.os_cache does the same, but its import prints a warning in notebooks

    return Path(platformdirs.user_cache_dir("fedopt"))
