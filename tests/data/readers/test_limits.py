"""The limit on the memory of an import."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from fedopt.data.readers.limits import limited_memory
from fedopt.errors import DataError


def test_allocation_above_the_limit_is_an_error_of_the_file(tmp_path: Path) -> None:
    """A hundredth of 2 GB is allowed, and 16 GB are requested."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(DataError, match="more than 0.0 GB of memory.*--limit-factor") as caught:
        with limited_memory(tmp_path, 0.01):
            np.empty(1 << 34, np.uint8)  # more than a worker of the tests may have free
    assert caught.value.path == tmp_path
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert np.ones(1 << 28, np.uint8)[-1] == 1


@pytest.mark.parametrize("factor", [1.0, 1e30, float("inf")])
def test_allocation_below_the_limit_succeeds(tmp_path: Path, factor: float) -> None:
    with limited_memory(tmp_path, factor):
        assert np.ones(1 << 28, np.uint8)[-1] == 1


def test_holes_of_a_sparse_file_do_not_raise_the_limit(tmp_path: Path) -> None:
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="more than 0.0 GB"), limited_memory(tmp_path, 0.01):
        np.empty(1 << 34, np.uint8)  # more than a worker of the tests may have free
