"""The files of a run directory, which the fuzz tests damage."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from fuzz_targets import FuzzTarget

import fedopt
from fedopt.runs.load import load
from fedopt.runs.records import read_run

SETTINGS = {
    "clients_per_round": 2,
    "client.steps": 1,
    "eval.sample": 20,
    "checkpoint.every": 1,
    "data.clients": 4,
}


@cache
def _finished_run() -> tempfile.TemporaryDirectory[str]:
    directory = tempfile.TemporaryDirectory(prefix="fedopt-fuzz-")
    fedopt.run(
        "synthetic_lr",
        algorithm="scaffold",
        rounds=2,
        config=SETTINGS,
        executor="serial",
        out=Path(directory.name, "run"),
    )
    return directory


def _make(d: Path) -> None:
    shutil.copytree(Path(_finished_run().name, "run"), d / "run")


def _read_record(source: Path, output: Path) -> None:
    read_run(source / "run")


def _load(source: Path, output: Path) -> None:
    load(source / "run")


RUN_TARGETS: dict[str, FuzzTarget] = {
    "run_info": FuzzTarget(_make, "run/run.json", _read_record),
    "run_config": FuzzTarget(_make, "run/config.toml", _read_record),
    "run_metrics": FuzzTarget(_make, "run/metrics.jsonl", _read_record),
    "run_clients": FuzzTarget(_make, "run/data.json", _read_record),
    "loaded_config": FuzzTarget(_make, "run/config.toml", _load),
    "checkpoint_position": FuzzTarget(_make, "run/checkpoints/000002/position.json", _load),
    "checkpoint_state": FuzzTarget(_make, "run/checkpoints/000002/state.safetensors", _load),
}
