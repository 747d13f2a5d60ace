"""The file with the checkpoints of several runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedopt.algorithms.scaffold import ScaffoldState
from fedopt.engine.loop import Position
from fedopt.runs import stack_checkpoint
from fedopt.runs.checkpoint import Checkpoint
from fedopt.runs.metrics_file import NAME as METRICS
from fedopt.runs.stack_checkpoint import RunCheckpoint


@pytest.mark.parametrize(("path", "is_used"), [("../run", False), ("trials/run", True)])
def test_only_runs_below_the_directory_of_the_file_are_written(
    path: str, is_used: bool, tmp_path: Path
) -> None:
    sweep = tmp_path / "sweep"
    (sweep / "trials").mkdir(parents=True)
    run = (sweep / path).resolve()
    run.mkdir()
    (run / "config.toml").touch()
    (run / METRICS).touch()
    description = {"round": 1, "metrics_bytes": 0}
    part = {
        "path": path,
        "keep": 1,
        "metrics_sha256": hashlib.sha256(b"").hexdigest(),
        "description": description,
    }
    file = sweep / "stack-0.safetensors"
    save_file({"0/x": torch.ones(2)}, file, metadata={"runs": json.dumps([part])})
    messages: list[str] = []
    stack_checkpoint.unpack(file, messages.append)
    assert (run / "checkpoints" / "000001").exists() == is_used
    assert len(messages) == (0 if is_used else 1)
    assert not file.exists()


def test_file_with_a_changed_bit_is_reported_and_not_used(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").touch()
    (run / METRICS).touch()
    position = Position(1, ScaffoldState(torch.ones(8), torch.zeros(8)), {}, {}, 100)
    checkpoint = Checkpoint(position, 0, 1.0, metrics_sha256=hashlib.sha256(b"").hexdigest())
    file = tmp_path / "stack-0.safetensors"
    stack_checkpoint.write(file, [RunCheckpoint(run, checkpoint, 1)])
    intact = file.read_bytes()
    for at in (intact.index(b"bytes_total") + 16, len(intact) - 2):  # a digit, and a number of the vector
        file.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
        messages: list[str] = []
        stack_checkpoint.unpack(file, messages.append)
        assert len(messages) == 1 and not (run / "checkpoints").exists() and not file.exists()
    file.write_bytes(intact)
    stack_checkpoint.unpack(file, messages.append)
    assert (run / "checkpoints" / "000001").is_dir()
