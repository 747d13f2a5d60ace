"""Model weights as files: safetensors under the module's own state_dict names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from fedopt.algorithms import Vector
from fedopt.errors import UserError
from fedopt.models.flat import Flat


def read_weights(path: Path, model: nn.Module, buffers: str = "refuse") -> tuple[Vector, str]:
    """The vector that the file's weights make of `model`, and the file's checksum."""
    try:
        data = path.read_bytes()
        weights = load(data)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot read weights from {path} ({error}); `fedopt export` writes such files"
        ) from error
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected != found:
        wrong = [name for name in {**expected, **found} if expected.get(name) != found.get(name)][0]
        raise UserError(
            f"{path} does not fit the model: {wrong!r} is {found.get(wrong, 'missing')} in the file and "
            f"{expected.get(wrong, 'unknown')} in the model"
        )
    trained = {name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    for name, value in model.state_dict().items():
        if name not in trained and not torch.equal(value, weights[name]):
            raise UserError(
                f"{path} has other values for {name!r}, which is not trained, than the model; build the "
                "model with the file's values"
            )
    model.load_state_dict(weights)
    return Flat(model, buffers).read(), "sha256:" + hashlib.sha256(data).hexdigest()
