"""A dense layer that can take its step of SGD within the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Dense(nn.Linear):
    """nn.Linear, with a `rate` to descend by in a backward pass.

    If that is set, weights and bias have moved when the backward pass is over, and autograd finds no gradient
    for them: the product that would be their gradient is added to them as it is computed. At small batches
    that saves writing, reading and adding as many numbers as there are weights.

    Where a layer is called several times, its weights are needed until the last of these calls has been
    dealt with; that one moves them, and autograd finds the gradients of the others. So calls are counted. A
    backward pass without a rate, such as one within the model, gets its gradients and moves nothing.
    """

    calls: int | None = None  # in this forward pass; None: nobody descends, and the layer is a linear one
    rate: float | None = None

    def forward(self, x: Tensor) -> Tensor:  # (..., inputs) -> (..., outputs)
        if self.calls is None or not torch.is_grad_enabled():
            return super().forward(x)
        self.calls += 1
        out: Tensor = _Descending.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return out


class _Descending(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, layer: Dense) -> Tensor:
        # Saved, so that autograd notices if somebody else needs the weights after they have moved.
        ctx.save_for_backward(x, weight, bias)
        ctx.layer = layer
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        layer: Dense = ctx.layer
        outer, flat = gradients[0].reshape(-1, len(bias)), x.reshape(-1, x.shape[-1])
        inner = (outer @ weight).view(x.shape) if ctx.needs_input_grad[0] else None
        if layer.rate is None or layer.calls is None:
            return inner, outer.t() @ flat, outer.sum(0), None
        layer.calls -= 1
        if layer.calls:
            return inner, outer.t() @ flat, outer.sum(0), None
        weight.addmm_(outer.t(), flat, alpha=-layer.rate)
        bias.sub_(outer.sum(0), alpha=layer.rate)
        return inner, None, None, None
