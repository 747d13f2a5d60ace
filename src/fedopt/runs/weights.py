"""Model weights: initial weights of a seed, and safetensors files with the module's own parameter names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from fedopt.algorithms import Vector
from fedopt.engine.worker import seeded
from fedopt.errors import DataError, ModelError
from fedopt.models.flat import Flat
from fedopt.runs.config import Config
from fedopt.tasks import Task


def fresh_model(task: Task, config: Config) -> nn.Module:
    """Build the task's model with the initial weights of the run's seed."""
    with seeded(config.seed, "init"):
        return task.model(**config.model)


def weights_checksum(path: Path) -> str:
    return "sha256:" + hashlib.sha256(_read(path)).hexdigest()


def read_weights(path: Path, model: nn.Module, buffers: str = "refuse") -> Vector:
    """Load the weights of a file into `model` and return them as one vector.

    Parameters that are not trained must have the same values in the file and in the model.
    """
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
    trained = {name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    for name, value in model.state_dict().items():
        if name not in trained and not torch.equal(value, weights[name]):
            raise ModelError(
                f"{name!r} is not trained, and its values in {path} differ from those of the model; build "
                "the model with the values of the file",
                what=name,
            )
    model.load_state_dict(weights)
    return Flat(model, buffers).read()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"cannot read weights from {path} ({error}); `fedopt export` writes such files", path=path
    )
