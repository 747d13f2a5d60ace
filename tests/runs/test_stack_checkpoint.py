"""The file with the checkpoints of several runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedopt.runs import stack_checkpoint
from fedopt.runs.metrics_file import NAME as METRICS


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
