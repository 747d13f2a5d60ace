"""Dropout masks that are drawn before a step, exactly as the model would draw them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from fedopt.tasks.batch import call_model


class _FixedDropout(nn.Module):
    """Replaces a dropout layer. It applies masks that were drawn before, in the order of the calls."""

    def __init__(self, masks: list[Tensor]) -> None:
        super().__init__()
        self._masks = masks

    def forward(self, x: Tensor) -> Tensor:
        return x * self._masks.pop(0) if self.training else x


def replace_dropout(module: nn.Module, masks: list[Tensor]) -> None:
    """Replace all dropout layers of `module` by layers that take their masks from the list."""
    for layer in list(module.modules()):
        for name, child in layer.named_children():
            if isinstance(child, _DropoutNd):
                setattr(layer, name, _FixedDropout(masks))


class DropoutMasks:
    """Draws the dropout masks of a batch as the model would: in its order, shapes and layouts."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module.train()
        self._layers = [layer for layer in module.modules() if isinstance(layer, _DropoutNd)]
        self._calls: dict[tuple[Any, ...], list[tuple[nn.Module, Tensor]]] = {}

    @property
    def is_used(self) -> bool:
        """Return whether the model has dropout layers."""
        return bool(self._layers)

    def draw(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the masks of a batch, drawn from torch's default generator."""
        if not self._layers:
            return ()
        key = (inputs.shape, inputs.dtype)
        if key not in self._calls:
            self._calls[key] = self._record(inputs.cpu())
        return tuple(layer(ones.clone()).to(inputs.device) for layer, ones in self._calls[key])

    def _record(self, inputs: Tensor) -> list[tuple[nn.Module, Tensor]]:
        """Record the calls of dropout layers. With ones as input, a layer returns its mask."""
        calls: list[tuple[nn.Module, Tensor]] = []

        def record(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            calls.append((layer, torch.ones_like(arguments[0])))

        hooks = [layer.register_forward_pre_hook(record) for layer in self._layers]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            call_model(self._module, inputs)
        for hook in hooks:
            hook.remove()
        return calls
