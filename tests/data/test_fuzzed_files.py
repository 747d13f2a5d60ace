"""Randomly damaged data files are read, or rejected in one line, with limited memory and time."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_targets import TARGETS
from fuzzing import check_damaged_files


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_file_is_read_or_rejected(name: str, tmp_path: Path) -> None:
    check_damaged_files(TARGETS[name], tmp_path)
