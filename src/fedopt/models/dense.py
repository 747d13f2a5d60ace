"""Dense layers that can take a step of SGD in the backward pass."""

from __future__ import annotations

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
        out: Tensor = _SelfUpdatingLayer.apply(x, self.rate, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out

    def can_update(self) -> bool:
        """Return whether weight and bias are parameters, and not computed from others."""
        return isinstance(self.weight, nn.Parameter) and isinstance(self.bias, nn.Parameter)


class _SelfUpdatingLayer(torch.autograd.Function):
    """A dense layer whose weights are updated in `backward`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, weight: Tensor, bias: Tensor) -> Tensor:
        # Saved weights let autograd raise an error if another node needs them after the update.
        ctx.save_for_backward(x, weight, bias)
        ctx.rate = rate
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        flat = gradients[0].reshape(-1, len(bias))
        inner = (flat @ weight).view(x.shape) if ctx.needs_input_grad[0] else None
        weight.addmm_(flat.t(), x.reshape(-1, x.shape[-1]), alpha=-ctx.rate)
        bias.sub_(flat.sum(0), alpha=ctx.rate)
        return inner, None, None, None
