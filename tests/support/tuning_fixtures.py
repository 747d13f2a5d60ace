"""Sweeps that several test modules read. Tests that change a sweep work on a copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sweeps import SQUARE, run_sweep


class FinishedSweep(NamedTuple):
    out: Path
    summary: dict[str, Any]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedSweep:
    """FedAvg and FedAdagrad at three client rates, one of which diverges."""
    out = tmp_path_factory.mktemp("sweep") / "finished"
    return FinishedSweep(out, run_sweep(out, algorithm="fedavg,fedadagrad"))


@pytest.fixture(scope="session")
def square(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAdagrad at two client rates and two server rates, evaluated after 2 and 4 rounds."""
    out = tmp_path_factory.mktemp("sweep") / "square"
    run_sweep(out, grid=SQUARE, algorithm="fedadagrad")
    return out


@pytest.fixture
def copy(finished: FinishedSweep, tmp_path: Path) -> Path:
    return shutil.copytree(finished.out, tmp_path / "sweep")
