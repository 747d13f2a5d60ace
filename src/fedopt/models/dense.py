"""Dense layers that can take a step of SGD in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Dense(nn.Linear):
    """nn.Linear that updates itself in the backward pass while `rate` is set.

    The product that would be the gradient is added to the weights directly. With small batches this saves
    writing, reading and adding as many numbers as there are weights.
    """

    updates_in_backward = True
    rate: float | None = None

    def forward(self, x: Tensor) -> Tensor:  # (..., inputs) -> (..., outputs)
        if self.rate is None or not torch.is_grad_enabled():
            return super().forward(x)
        return _forward_self_updating([self], x, self.rate)

    def can_update(self) -> bool:
        """Return whether weight and bias are parameters, and not computed from others."""
        return isinstance(self.weight, nn.Parameter) and isinstance(self.bias, nn.Parameter)


class DenseStack(nn.Sequential):
    """Dense layers and sigmoids in sequence, which update themselves in one autograd node."""

    updates_in_backward = True
    rate: float | None = None

    def forward(self, x: Tensor) -> Tensor:  # (B, inputs) -> (B, outputs)
        if self.rate is None or not torch.is_grad_enabled():
            out: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return out
        return _forward_self_updating(list(self), x, self.rate)

    def can_update(self) -> bool:
        """Return whether all layers are plain dense layers or sigmoids, used once and without hooks."""
        weights = [id(p) for layer in self for p in layer.parameters()]
        return (
            len(set(weights)) == len(weights)
            and all(type(layer) in (Dense, nn.Sigmoid) and not _is_modified(layer) for layer in self)
            and all(layer.can_update() for layer in self if isinstance(layer, Dense))
            and not nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
        )


def _is_modified(layer: nn.Module) -> bool:
    """Return whether calling the layer does more than its class: hooks, or a replaced `forward`."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)


def _forward_self_updating(layers: Sequence[nn.Module], x: Tensor, rate: float) -> Tensor:
    weights = [p for layer in layers if isinstance(layer, Dense) for p in (layer.weight, layer.bias)]
    out: Tensor = _SelfUpdatingLayers.apply(x, rate, layers, *weights)  # type: ignore[no-untyped-call]
    return out


class _SelfUpdatingLayers(torch.autograd.Function):
    """Dense layers and sigmoids whose weights are updated in `backward`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, layers: Sequence[nn.Module], *weights: Tensor) -> Tensor:
        activations, h = [], x  # the input of a dense layer, the output of a sigmoid
        for layer in layers:
            if isinstance(layer, Dense):
                activations.append(h)
                h = nn.functional.linear(h, layer.weight, layer.bias)
            else:
                h = h.sigmoid()
                activations.append(h)
        # Saved weights let autograd raise an error if another node needs them after the update.
        ctx.save_for_backward(*activations, *weights)
        ctx.rate, ctx.layers = rate, layers
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count, saved = len(ctx.layers), ctx.saved_tensors
        activations, weights = saved[:count], list(saved[count:])
        outer: Tensor = gradients[0]
        for position in reversed(range(count)):
            h = activations[position]
            if not isinstance(ctx.layers[position], Dense):
                outer = torch.ops.aten.sigmoid_backward(outer, h)
                continue
            bias, weight = weights.pop(), weights.pop()
            flat = outer.reshape(-1, len(bias))
            if position or ctx.needs_input_grad[0]:
                outer = (flat @ weight).view(h.shape)
            weight.addmm_(flat.t(), h.reshape(-1, h.shape[-1]), alpha=-ctx.rate)
            bias.sub_(flat.sum(0), alpha=ctx.rate)
        inner = outer if ctx.needs_input_grad[0] else None
        return inner, None, None, *(None for _ in saved[count:])
