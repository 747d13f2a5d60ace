"""Sweeps that several test modules read. Tests that change a sweep work on a copy."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sweeps import SQUARE, run_sweep


class FinishedSweep(NamedTuple):
    out: Path
    summary: dict[str, Any]


def sweep_once(factory: pytest.TempPathFactory, name: str, *words: str, **changes: Any) -> FinishedSweep:
    """Run a sweep once for all processes of the test session."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # which all processes have in common
    out, summary = root / name / "sweep", root / name / "summary.json"
    out.parent.mkdir(exist_ok=True)
    with open(root / name / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not summary.exists():
            summary.write_text(json.dumps(run_sweep(out, *words, **changes)))
    return FinishedSweep(out, json.loads(summary.read_text()))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedSweep:
    """FedAvg and FedAdagrad at three client rates, one of which diverges; read-only."""
    return sweep_once(tmp_path_factory, "finished", "--workers", "2", algorithm="fedavg,fedadagrad")


@pytest.fixture(scope="session")
def square(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAdagrad at two client rates and two server rates, evaluated after 2 and 4 rounds."""
    out = tmp_path_factory.mktemp("sweep") / "square"
    run_sweep(out, grid=SQUARE, algorithm="fedadagrad")
    return out


@pytest.fixture
def copy(finished: FinishedSweep, tmp_path: Path) -> Path:
    return shutil.copytree(finished.out, tmp_path / "sweep")
