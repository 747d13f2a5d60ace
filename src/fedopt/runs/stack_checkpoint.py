"""One file with the checkpoints of several runs that are trained together.

Runs whose rounds take milliseconds would spend most of their time on checkpoints of their own. `unpack`
writes the parts of a file into the run directories, where they are checkpoints like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedopt.algorithms.state import flatten
from fedopt.documents import parse_json, read_regular_file
from fedopt.files import Log, write_atomically
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs.checkpoint import Checkpoint
from fedopt.runs.metrics_file import NAME as METRICS


class RunCheckpoint(NamedTuple):
    """The checkpoint of one run."""

    path: Path  # the run directory, below that of the file
    checkpoint: Checkpoint
    keep: int  # number of checkpoints that the run directory keeps


class _Part(BaseModel):
    """The entry of one run in the metadata of the file."""

    model_config = ConfigDict(strict=True, extra="forbid")

    path: str  # relative to the directory of the file
    keep: int
    metrics_sha256: str  # of the lines that belong to the checkpoint
    description: dict[str, Any]


_PARTS = TypeAdapter(list[_Part])


def write(file: Path, runs: Sequence[RunCheckpoint]) -> None:
    """Write the checkpoints of all runs to one file. Their metrics must be on disk."""
    tensors = {
        f"{number}/{name}": vector.clone()
        for number, run in enumerate(runs)
        for name, vector in flatten(run.checkpoint.position.state).items()
    }
    parts = [
        {
            "path": run.path.relative_to(file.parent).as_posix(),
            "keep": run.keep,
            "metrics_sha256": run.checkpoint.metrics_sha256,
            "description": checkpoints.describe(run.checkpoint),
        }
        for run in runs
    ]
    text = json.dumps(parts)
    write_atomically(file, save(tensors, metadata={"runs": text, "sha256": _checksum(text, tensors)}))


def unpack(file: Path, log: Log) -> None:
    """Write each checkpoint into the directory of its run, and delete the file.

    A run that has a newer checkpoint, or other metrics, is left as it is. A damaged file is reported; its
    runs then continue from their own checkpoints.
    """
    if not file.exists():
        return
    try:
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
            tensors = {name: content.get_tensor(name) for name in content.keys()}
        if metadata.get("sha256") not in (None, _checksum(metadata["runs"], tensors)):  # None in 0.2.0
            raise ValueError("its checksum differs")
        parts = _PARTS.validate_python(parse_json(metadata["runs"]))
        _check_paths(file.parent, parts)
        for number, part in enumerate(parts):
            names = [name for name in tensors if name.startswith(f"{number}/")]
            vectors = {name.partition("/")[2]: tensors[name] for name in names}
            _write_part(file.parent / part.path, part, vectors)
    except (OSError, ValueError, KeyError, ValidationError, SafetensorError) as error:
        log(f"{file} is damaged ({type(error).__name__}); its trials continue from their own checkpoints")
    file.unlink()


def _checksum(runs: str, tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(runs.encode())
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    return digest.hexdigest()


def _check_paths(directory: Path, parts: Sequence[_Part]) -> None:
    """Raise a ValueError if the directory of a run is not below `directory`."""
    root = directory.resolve()
    for part in parts:
        if not (root / part.path).resolve().is_relative_to(root):
            raise ValueError(f"{part.path} is not below {directory}")


def _write_part(run: Path, part: _Part, vectors: dict[str, Any]) -> None:
    directory, description = run / "checkpoints", part.description
    newest = max(checkpoints.rounds(directory), default=0)
    if newest >= description["round"] or not (run / "config.toml").is_file():
        return
    metrics = read_regular_file(run / METRICS)[: description["metrics_bytes"]]
    if hashlib.sha256(metrics).hexdigest() == part.metrics_sha256:
        checkpoints.write_parts(directory, description, vectors, part.keep)
