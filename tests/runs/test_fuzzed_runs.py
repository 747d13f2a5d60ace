"""Randomly damaged run directories are read, or rejected in one line, with limited memory and time."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_run_targets import RUN_TARGETS
from fuzzing import check_damaged_files
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedopt.errors import FedoptError
from fedopt.tuning.grid import read_grid


@pytest.mark.parametrize("name", RUN_TARGETS)
def test_damaged_run_is_read_or_rejected(name: str, tmp_path: Path) -> None:
    check_damaged_files(RUN_TARGETS[name], tmp_path)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.text(alphabet='client_lrsv=-+:.,;0123456789 eE\\"[]{}\n\0', max_size=60))
@example("client_lr=-3:1e308:1e-300")
@example("client_lr=0:1:1e-300")
@example("client_lr=" + "9" * 5000)
def test_grid_is_parsed_or_rejected(text: str) -> None:
    try:
        read_grid(text)
    except FedoptError as error:
        assert "\n" not in str(error)
