"""A dense layer that can take its step of SGD within the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Dense(nn.Linear):
    """nn.Linear, with a `rate` to descend by.

    As long as that is set, weights and bias have moved when the backward pass is over, and autograd finds no
    gradient for them: the product that would be their gradient is added to them as it is computed. At small
    batches that saves writing, reading and adding as many numbers as there are weights.
    """

    rate: float | None = None

    def forward(self, x: Tensor) -> Tensor:  # (..., inputs) -> (..., outputs)
        if self.rate is None or not torch.is_grad_enabled():
            return super().forward(x)
        out: Tensor = _Descending.apply(x, self.weight, self.bias, self.rate)  # type: ignore[no-untyped-call]
        return out


class _Descending(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rate: float) -> Tensor:
        # Saved, so that autograd notices if somebody needs the weights after they have moved.
        ctx.save_for_backward(x, weight, bias)
        ctx.rate = rate
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight, bias = ctx.saved_tensors
        outer = gradients[0].reshape(-1, len(bias))
        inner = (outer @ weight).view(x.shape) if ctx.needs_input_grad[0] else None
        weight.addmm_(outer.t(), x.reshape(-1, x.shape[-1]), alpha=-ctx.rate)
        bias.sub_(outer.sum(0), alpha=ctx.rate)
        return inner, None, None, None


def movable(module: nn.Module) -> list[Dense]:
    """The dense layers of `module` that may descend within its backward pass.

    Those of the paper's networks as they stand, whose classes say `dense_once`: every layer is called once,
    and nobody else needs its weights or their gradient. Of any other model, a subclass too, nothing is known.
    """
    if not vars(type(module)).get("dense_once", False):
        return []
    if any(not p.requires_grad or p._backward_hooks for p in module.parameters()):
        return []
    return [layer for layer in module.modules() if type(layer) is Dense]
