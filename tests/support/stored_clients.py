"""A federation whose store is named by an environment variable, so that nodes can have different ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import small

from fedopt.data import Arrays, Federation, Split
from fedopt.data.store import open_store

STORE = "FEDOPT_TEST_STORE"


def _cloud(index: int) -> Arrays:
    return small.cloud("stored", 10, index)


def stored_federation(source: str) -> Federation:
    """Open the store of the environment. The examples are those of the small problem."""
    directory = Path(os.environ.get(STORE, "unset"))
    open_store(directory)
    split = Split(["a", "b"], np.array([10, 10]), _cloud)
    return Federation(split, split, str(directory))
