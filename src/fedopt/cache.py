"""The directory of downloads, stores and copies of remote directories."""

from __future__ import annotations

import os
from pathlib import Path


def data_directory() -> Path:
    """Return the directory of all downloads and stores. The environment variable FEDOPT_DATA overrides it."""
    if directory := os.environ.get("FEDOPT_DATA"):
        return Path(directory).expanduser().absolute()
    import pooch

    return Path(pooch.os_cache("fedopt"))
