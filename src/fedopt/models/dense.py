"""Dense layers that can take their step of SGD within the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn


class Dense(nn.Linear):
    """nn.Linear, with a `rate` to descend by.

    As long as that is set, weights and bias have moved when the backward pass is over, and autograd finds no
    gradient for them: the product that would be their gradient is added to them as it is computed. At small
    batches that saves writing, reading and adding as many numbers as there are weights.
    """

    descends = True
    rate: float | None = None

    def forward(self, x: Tensor) -> Tensor:  # (..., inputs) -> (..., outputs)
        if self.rate is None or not torch.is_grad_enabled():
            return super().forward(x)
        return _descend([self], x, self.rate)


class DenseStack(nn.Sequential):
    """Dense layers and sigmoids one after the other, which descend as one node of autograd, not many."""

    descends = True
    rate: float | None = None

    def forward(self, x: Tensor) -> Tensor:  # (B, inputs) -> (B, outputs)
        if self.rate is None or not torch.is_grad_enabled():
            out: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return out
        return _descend(list(self), x, self.rate)


def _descend(layers: Sequence[nn.Module], x: Tensor, rate: float) -> Tensor:
    weights = [p for layer in layers if isinstance(layer, Dense) for p in (layer.weight, layer.bias)]
    out: Tensor = _Descending.apply(x, rate, layers, *weights)  # type: ignore[no-untyped-call]
    return out


class _Descending(torch.autograd.Function):
    """Dense layers and sigmoids; the weights move in `backward`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, layers: Sequence[nn.Module], *weights: Tensor) -> Tensor:
        seen, h = [], x  # what each layer's gradient needs: a dense layer's input, a sigmoid's output
        for layer in layers:
            if isinstance(layer, Dense):
                seen.append(h)
                h = nn.functional.linear(h, layer.weight, layer.bias)
            else:
                h = h.sigmoid()
                seen.append(h)
        # Saved, so that autograd notices if somebody needs the weights after they have moved.
        ctx.save_for_backward(*seen, *weights)
        ctx.rate, ctx.layers = rate, layers
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count, saved = len(ctx.layers), ctx.saved_tensors
        seen, weights = saved[:count], list(saved[count:])
        outer: Tensor = gradients[0]
        for place in reversed(range(count)):
            h = seen[place]
            if not isinstance(ctx.layers[place], Dense):
                outer = torch.ops.aten.sigmoid_backward(outer, h)
                continue
            bias, weight = weights.pop(), weights.pop()
            flat = outer.reshape(-1, len(bias))
            if place or ctx.needs_input_grad[0]:
                outer = (flat @ weight).view(h.shape)
            weight.addmm_(flat.t(), h.reshape(-1, h.shape[-1]), alpha=-ctx.rate)
            bias.sub_(flat.sum(0), alpha=ctx.rate)
        inner = outer if ctx.needs_input_grad[0] else None
        return inner, None, None, *(None for _ in saved[count:])


class Descending(Protocol):
    """A layer that moves itself while it has a rate."""

    rate: float | None


def movable(module: nn.Module) -> list[Descending]:
    """The layers of `module` that may descend within its backward pass.

    Those of the paper's networks as they stand, whose classes say `called_once`: every layer is called once,
    and nobody else needs its weights or their gradient. Of any other model, a subclass too, nothing is known.
    """
    if not _says(module, "called_once"):
        return []
    if any(not p.requires_grad or p._backward_hooks for p in module.parameters()):
        return []
    layers = [layer for layer in module.modules() if _says(layer, "descends") and _is_plain(layer)]
    return cast("list[Descending]", layers)


def _says(module: nn.Module, name: str) -> bool:
    """Whether the very class of `module` says so."""
    return bool(vars(type(module)).get(name, False))


def _is_plain(layer: nn.Module) -> bool:
    """Whether it is no more than it looks: weights of its own; in a stack, layers that nobody watches."""
    if isinstance(layer, Dense):
        return isinstance(layer.weight, nn.Parameter) and isinstance(layer.bias, nn.Parameter)
    if not isinstance(layer, DenseStack):
        return True
    weights = [id(p) for inner in layer for p in inner.parameters()]
    return (
        len(set(weights)) == len(weights)  # autograd would not notice a layer that is there twice
        and all(type(one) in (Dense, nn.Sigmoid) and _is_plain(one) and not _watched(one) for one in layer)
        and not nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def _watched(layer: nn.Module) -> bool:
    """Whether somebody would notice that it is not called."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)
