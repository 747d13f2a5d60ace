"""The part of a model that training does not change: frozen parameters and buffers.

A model factory may draw these values at random, and from any generator. They are therefore taken from one
module, once per run. All other modules of the run receive them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedopt.errors import ModelError

_ALIGNMENT = 64  # bytes: matrix products may depend on the alignment of their inputs


class _Slot(NamedTuple):
    """The place of one tensor in the block of memory."""

    dtype: torch.dtype
    shape: torch.Size
    start: int
    stop: int


class FixedState:
    """Named tensors in one block of memory, which processes can share.

    >>> state = FixedState({"scale": torch.tensor([1.0, 2.0]), "count": torch.tensor(3)})
    >>> state.tensors()
    {'scale': tensor([1., 2.]), 'count': tensor(3)}
    >>> state.describe()
    {'scale': 'float32 [2]', 'count': 'int64 []'}
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._slots: dict[str, _Slot] = {}
        end = 0
        for name, tensor in tensors.items():
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = start + tensor.numel() * tensor.element_size()
            self._slots[name] = _Slot(tensor.dtype, tensor.shape, start, end)
        self._block = torch.zeros(end, dtype=torch.uint8)
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name].detach())
        self._written = self._crcs()

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name. They are views of the block."""
        return {
            name: self._block[slot.start : slot.stop].view(slot.dtype).view(slot.shape)
            for name, slot in self._slots.items()
        }

    @property
    def nbytes(self) -> int:
        return len(self._block)

    def describe(self) -> dict[str, str]:
        """Return type and shape of each tensor."""
        return {name: describe_tensor(tensor) for name, tensor in self.tensors().items()}

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of the bytes of each tensor."""
        return {
            name: hashlib.sha256(self._block[slot.start : slot.stop].numpy().data).hexdigest()
            for name, slot in self._slots.items()
        }

    def check(self) -> None:
        """Refuse a model that has changed a value in a way that torch does not notice, such as `.data`."""
        for name, now in self._crcs().items():
            if now != self._written[name]:
                raise changed_tensor(name)

    def _crcs(self) -> dict[str, int]:
        """Return a checksum of each tensor that is faster than those that are stored."""
        block = self._block.numpy().data
        return {name: zlib.crc32(block[slot.start : slot.stop]) for name, slot in self._slots.items()}

    def apply(self, module: nn.Module, *, copy: bool = False) -> None:
        """Give the frozen parameters and buffers of `module` these values.

        The module reads the memory of this object, or its own copy.
        """
        targets = fixed_tensors(module)
        check_same_tensors(self.describe(), {name: describe_tensor(t) for name, t in targets.items()})
        for name, value in self.tensors().items():
            targets[name].data = (value.clone() if copy else value).to(targets[name].device)


def changed_tensor(name: str) -> ModelError:
    """Build the error for a buffer or frozen parameter that the model has changed."""
    return ModelError(
        f"the model changed {name!r}, a buffer or frozen parameter, which has no federated mean; make it a "
        "trainable parameter or keep it constant",
        what=name,
    )


def fixed_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen parameters and all buffers of a module, also those without a place in state_dict."""
    frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
    tensors: dict[str, Tensor] = {**frozen, **dict(module.named_buffers())}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise ModelError(
                f"{name!r} is not a dense tensor ({tensor.layout}); register a dense one", what=name
            )
    return tensors


def describe_parameters(module: nn.Module) -> dict[str, str]:
    """Return type and shape of each trainable parameter."""
    return {name: describe_tensor(p) for name, p in module.named_parameters() if p.requires_grad}


def describe_tensor(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def check_same_tensors(expected: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Raise an error that names the first tensor whose type or shape differs."""
    for name in {**expected, **present}:
        before, now = expected.get(name, "absent"), present.get(name, "absent")
        if before != now:
            raise ModelError(
                f"this is another model than that of the run: {name!r} was {before} and is {now}; use the "
                "model of the run",
                what="model",
            )
