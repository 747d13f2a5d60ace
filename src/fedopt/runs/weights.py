"""Model weights: initial weights of a seed, and safetensors files with the module's own parameter names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from fedopt.engine.initial_model import InitialModel, read_model
from fedopt.engine.torch_state import seeded
from fedopt.errors import DataError, ModelError
from fedopt.runs.config import Config
from fedopt.tasks import Task


def fresh_model(task: Task, config: Config) -> nn.Module:
    """Build the task's model with the initial weights of the run's seed."""
    with seeded(config.seed, "init"):
        return task.model(**config.model)


def weights_checksum(path: Path) -> str:
    return "sha256:" + hashlib.sha256(_read(path)).hexdigest()


def read_weights(path: Path, model: nn.Module, buffers: str = "refuse") -> InitialModel:
    """Load the weights of a file into `model`. Frozen parameters and buffers have the values of the file."""
    try:
        weights = load(_read(path))
    except SafetensorError as error:
        raise _unreadable(path, error) from error
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected != shapes:
        name = next(name for name in {**expected, **shapes} if expected.get(name) != shapes.get(name))
        raise ModelError(
            f"{path} does not fit the model: {name!r} is {shapes.get(name, 'missing')} in the file and "
            f"{expected.get(name, 'unknown')} in the model",
            what=name,
        )
    model.load_state_dict(weights)
    return read_model(model, buffers)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"cannot read weights from {path} ({error}); `fedopt export` writes such files", path=path
    )
