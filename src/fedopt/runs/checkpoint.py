"""Checkpoints: a directory per round with one array per state vector, written atomically.

checkpoints/000040/state.safetensors    x, m, v, c, ... under the algorithm's names
checkpoints/000040/position.json        round, schedules, length of metrics.jsonl, checksum of the state
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save

from fedopt.algorithms import State
from fedopt.algorithms.state import flatten, unflatten
from fedopt.engine.loop import Position
from fedopt.errors import RunDirectoryError
from fedopt.files import disk_errors, sync


class Checkpoint(NamedTuple):
    position: Position
    metrics_bytes: int  # length of metrics.jsonl after this round
    seconds: float


def write(directory: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint and remove all but the newest `keep`."""
    position = checkpoint.position
    state = save({name: v.clone() for name, v in flatten(position.state).items()})
    fields = {
        "round": position.round,
        "client_schedule": position.client_schedule,
        "server_schedule": position.server_schedule,
        "bytes_total": position.bytes_total,
        "stalled": position.stalled,
        "initial_loss": position.initial_loss,
        "metrics_bytes": checkpoint.metrics_bytes,
        "seconds": checkpoint.seconds,
        "state_sha256": hashlib.sha256(state).hexdigest(),
    }
    fields["sha256"] = _checksum(fields)
    final = _path(directory, position.round)
    temporary = directory / f".{final.name}.{os.getpid()}.tmp"
    with disk_errors(final):
        directory.mkdir(exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)  # a damaged checkpoint
        try:
            temporary.mkdir()
            for name, data in (("state.safetensors", state), ("position.json", json.dumps(fields).encode())):
                with open(temporary / name, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync(directory)
    for old in rounds(directory)[:-keep]:
        shutil.rmtree(_path(directory, old), ignore_errors=True)


def rounds(directory: Path) -> list[int]:
    """The rounds that have a checkpoint, in ascending order."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdigit())


def read(directory: Path, round: int, like: State) -> Checkpoint:
    """Read the checkpoint of a round; `like` is a state of the right structure."""
    path = _path(directory, round)
    with _damage(path):
        fields, vectors = _read_verified(path)
        position = Position(
            fields["round"],
            unflatten(like, vectors),
            fields["client_schedule"],
            fields["server_schedule"],
            fields["bytes_total"],
            fields["stalled"],
            fields.get("initial_loss"),
        )
        return Checkpoint(position, fields["metrics_bytes"], fields["seconds"])


def read_vector(directory: Path, round: int, name: str) -> torch.Tensor:
    """Read one vector of a checkpoint, such as the model x."""
    path = _path(directory, round)
    with _damage(path):
        return _read_verified(path)[1][name]


def _path(directory: Path, round: int) -> Path:
    return directory / f"{round:06d}"


def _checksum(fields: dict[str, Any]) -> str:
    text = json.dumps({key: value for key, value in fields.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_verified(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read position.json and the vectors, and verify both checksums."""
    fields: dict[str, Any] = json.loads((path / "position.json").read_text())
    data = (path / "state.safetensors").read_bytes()
    if fields["sha256"] != _checksum(fields):
        raise ValueError("checksum of position.json differs")
    if hashlib.sha256(data).hexdigest() != fields["state_sha256"]:
        raise ValueError("checksum differs")
    return fields, load(data)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Report any problem with a checkpoint's files as damage."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(f"checkpoint {path} is damaged ({error})", path=path) from error
