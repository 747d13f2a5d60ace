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
        # Saved, so that autograd notices if a layer is used twice and has moved in between.
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
