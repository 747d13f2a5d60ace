"""Checkpoints: a directory per round with one array per state vector, written atomically.

checkpoints/000040/state.safetensors    x, m, v, c, ... under the algorithm's names
checkpoints/000040/position.json        round, schedules, length of metrics.jsonl, checksums
checkpoints/000040/clients.json         checksums of the client rows that belong to it, if there are any
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedopt.algorithms import State
from fedopt.algorithms.state import flatten, unflatten
from fedopt.documents import first_problem, is_intact, parse_json, read_regular_file, seal
from fedopt.engine.loop import Position
from fedopt.errors import RunDirectoryError
from fedopt.files import disk_errors, sync
from fedopt.runs.client_table import RowChecksums


class CheckpointDamage(RunDirectoryError):
    """The files of a checkpoint are incomplete or changed. An earlier checkpoint may be intact."""


class Checkpoint(NamedTuple):
    position: Position
    metrics_bytes: int  # length of metrics.jsonl after this round
    seconds: float
    rows: RowChecksums | None = None  # the client rows after this round; older versions did not record them
    metrics_sha256: str | None = None  # of this part of metrics.jsonl; None in older versions, as the next
    config_sha256: str | None = None  # of the configuration's identity


def write(directory: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint and remove all but the newest `keep`."""
    position = checkpoint.position
    vectors = flatten(position.state)
    files = {"state.safetensors": save({name: v.clone() for name, v in vectors.items()})}
    if checkpoint.rows:
        files["clients.json"] = json.dumps(checkpoint.rows, indent=0).encode()
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    fields: dict[str, Any] = {
        "round": position.round,
        "client_schedule": position.client_schedule,
        "server_schedule": position.server_schedule,
        "bytes_total": position.bytes_total,
        "stalled": position.stalled,
        "initial_loss": position.initial_loss,
        "metrics_bytes": checkpoint.metrics_bytes,
        "metrics_sha256": checkpoint.metrics_sha256,
        "config_sha256": checkpoint.config_sha256,
        "seconds": checkpoint.seconds,
        "files": checksums,
    }
    files["position.json"] = json.dumps(seal(fields)).encode()
    final = _path(directory, position.round)
    with disk_errors(final):
        directory.mkdir(exist_ok=True)
        shutil.rmtree(final, ignore_errors=True)  # a damaged checkpoint
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=directory))
        try:
            for name, data in files.items():
                with open(temporary / name, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            temporary.chmod(directory.stat().st_mode & 0o777)  # a temporary directory is private
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
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())


def read(directory: Path, round: int, like: State) -> Checkpoint:
    """Read the checkpoint of a round; `like` is a state of the right structure."""
    path = _path(directory, round)
    with _damage(path):
        fields, vectors, rows = _read_verified(path)
        if fields.round != round:
            raise ValueError(f"it belongs to round {fields.round}")
        position = Position(
            fields.round,
            unflatten(like, vectors),
            fields.client_schedule,
            fields.server_schedule,
            fields.bytes_total,
            fields.stalled,
            fields.initial_loss,
        )
        checksums = fields.metrics_sha256, fields.config_sha256
        return Checkpoint(position, fields.metrics_bytes, fields.seconds, rows, *checksums)


def read_vectors(directory: Path, round: int, names: Sequence[str], config_sha256: str) -> list[torch.Tensor]:
    """Read vectors of a checkpoint, such as the model x. Refuse another configuration."""
    path = _path(directory, round)
    with _damage(path):
        fields, vectors, _ = _read_verified(path)
        check_config(directory.parent, fields.config_sha256, config_sha256)
        return [vectors[name] for name in names]


def read_rows(directory: Path, round: int) -> RowChecksums | None:
    """Read the list of client rows that belong to a checkpoint; None for older versions."""
    path = _path(directory, round)
    with _damage(path):
        return _read_verified(path)[2]


def check_config(run: Path, recorded: str | None, present: str) -> None:
    """Refuse a configuration with which a checkpoint was not written. Older versions did not record it."""
    if recorded not in (None, present):
        raise RunDirectoryError(
            f"{run / 'config.toml'} is damaged: the checkpoints belong to another configuration; restore it, "
            "or choose another directory",
            path=run,
        )


def remove_later(directory: Path, round: int) -> None:
    """Remove the checkpoints of the rounds after `round`."""
    for later in rounds(directory):
        if later > round:
            shutil.rmtree(_path(directory, later), ignore_errors=True)


def _path(directory: Path, round: int) -> Path:
    return directory / f"{round:06d}"


class _Fields(BaseModel):
    """position.json. Checkpoints of older versions have `state_sha256` instead of `files`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    round: NonNegativeInt
    client_schedule: dict[str, Any]
    server_schedule: dict[str, Any]
    bytes_total: NonNegativeInt
    stalled: NonNegativeInt
    initial_loss: float | None = None
    metrics_bytes: NonNegativeInt
    metrics_sha256: str | None = None
    config_sha256: str | None = None
    seconds: float
    files: dict[str, str] = {}
    state_sha256: str | None = None
    sha256: str


def _read_verified(path: Path) -> tuple[_Fields, dict[str, torch.Tensor], RowChecksums | None]:
    """Read position.json, the vectors and the list of client rows, and verify all checksums."""
    document = parse_json(read_regular_file(path / "position.json"))
    fields = _Fields.model_validate(document)
    if not is_intact(document):
        raise ValueError("checksum of position.json differs")
    checksums = {"state.safetensors": fields.state_sha256} if fields.state_sha256 else fields.files
    files = {name: read_regular_file(path / name) for name in checksums}
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != checksums[name]:
            raise ValueError(f"checksum of {name} differs")
    rows = parse_json(files.get("clients.json", b"{}"))
    return (
        fields,
        load(files["state.safetensors"]),
        None if fields.state_sha256 else _RowList.validate_python(rows),
    )


_RowList = TypeAdapter(dict[str, str])


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Report files that cannot be read, and files with wrong content."""
    try:
        yield
    except PermissionError as error:
        raise RunDirectoryError(f"cannot read checkpoint {path}: {error.strerror}", path=path) from error
    except ValidationError as error:
        raise CheckpointDamage(f"checkpoint {path} is damaged ({first_problem(error)})", path=path) from error
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointDamage(f"checkpoint {path} is damaged ({error})", path=path) from error
