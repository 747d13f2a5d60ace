"""RUN/model.safetensors: the frozen parameters and buffers of a run, which its checkpoints do not contain."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from fedopt.errors import RunDirectoryError
from fedopt.files import write_atomically
from fedopt.models.fixed_state import FixedState

NAME = "model.safetensors"


def write(run: Path, fixed: FixedState) -> None:
    tensors = fixed.tensors()
    write_atomically(run / NAME, save(tensors, metadata={"sha256": _checksum(fixed)}))


def read(run: Path) -> FixedState | None:
    """Read the file of a run directory. Return None if there is none."""
    path = run / NAME
    if not path.exists():
        return None
    try:
        fixed = FixedState(load(path.read_bytes()))
        with safe_open(path, framework="pt") as file:
            if file.metadata()["sha256"] != _checksum(fixed):
                raise ValueError("checksum differs")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            f"{path} is damaged ({error}); restore it, or choose another run directory", path=run
        ) from error
    return fixed


def _checksum(fixed: FixedState) -> str:
    """The checksum of all names and values, in any order."""
    return hashlib.sha256(json.dumps(fixed.checksums(), sort_keys=True).encode()).hexdigest()
