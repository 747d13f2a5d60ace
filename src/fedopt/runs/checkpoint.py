"""Checkpoints: one array per symbol in safetensors, the rest in JSON, a directory that appears whole.

checkpoints/000040/state.safetensors    x, m, v, c, ... as the algorithm names them
checkpoints/000040/position.json        round, schedules, length of metrics.jsonl, checksum of the state
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save

from fedopt.algorithms import State
from fedopt.algorithms.state import flatten, unflatten
from fedopt.engine.loop import Position
from fedopt.errors import UserError
from fedopt.files import disk_errors, sync


class Checkpoint(NamedTuple):
    position: Position
    metrics_bytes: int  # how much of metrics.jsonl belongs to the rounds done
    seconds: float


def write(directory: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint and remove all but the last `keep`."""
    position = checkpoint.position
    state = save({name: v.clone() for name, v in flatten(position.state).items()})
    words = {
        "round": position.round,
        "client_schedule": position.client_schedule,
        "server_schedule": position.server_schedule,
        "bytes_total": position.bytes_total,
        "stalled": position.stalled,
        "metrics_bytes": checkpoint.metrics_bytes,
        "seconds": checkpoint.seconds,
        "state_sha256": hashlib.sha256(state).hexdigest(),
    }
    words["sha256"] = _checksum(words)
    final = directory / f"{position.round:06d}"
    aside = directory / f".{final.name}.{os.getpid()}.tmp"
    with disk_errors(final):
        directory.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)  # a damaged one that was passed over
        try:
            aside.mkdir()
            for name, data in (("state.safetensors", state), ("position.json", json.dumps(words).encode())):
                with open(aside / name, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(aside, final)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        sync(directory)
    for old in rounds(directory)[:-keep]:
        shutil.rmtree(directory / f"{old:06d}", ignore_errors=True)


def rounds(directory: Path) -> list[int]:
    """The rounds that have a checkpoint, in order."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdigit())


def _checksum(words: dict[str, Any]) -> str:
    text = json.dumps({key: value for key, value in words.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _verified(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Words and vectors of a checkpoint whose checksum is right."""
    words: dict[str, Any] = json.loads((path / "position.json").read_text())
    data = (path / "state.safetensors").read_bytes()
    if words["sha256"] != _checksum(words):
        raise ValueError("checksum of position.json differs")
    if hashlib.sha256(data).hexdigest() != words["state_sha256"]:
        raise ValueError("checksum differs")
    return words, load(data)


def read(directory: Path, round: int, like: State) -> Checkpoint:
    """The checkpoint of a round; `like` is a state of the right shape."""
    path = directory / f"{round:06d}"
    try:
        words, vectors = _verified(path)
        position = Position(
            words["round"],
            unflatten(like, vectors),
            words["client_schedule"],
            words["server_schedule"],
            words["bytes_total"],
            words["stalled"],
        )
        return Checkpoint(position, words["metrics_bytes"], words["seconds"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"checkpoint {path} is damaged ({error})") from error


def read_vector(directory: Path, round: int, name: str) -> torch.Tensor:
    """One vector of a checkpoint, such as the model x."""
    path = directory / f"{round:06d}"
    try:
        return _verified(path)[1][name]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"checkpoint {path} is damaged ({error})") from error
