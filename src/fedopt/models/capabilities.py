"""Capabilities that a model class can declare. The engine selects fast paths from them.

A declaration is a class attribute with the value True. It applies to exactly that class: a subclass may
change the forward pass, so it must repeat the declaration.

    each_layer_once        `forward` calls every layer once, and every parameter belongs to one layer
    updates_in_backward    a layer that can update itself in the backward pass (see `SelfUpdating`)
    zero_padded_inputs     further columns of zeros in the inputs do not change the outputs

A layer with a fused kernel that `torch.func.vmap` does not support implements `HasBasicOperations`.
"""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

from torch import nn


class SelfUpdating(Protocol):
    """A layer that updates itself in the backward pass while `rate` is set.

    The backward pass computes w = w - rate * gradient for its weights, and autograd gets no gradient for
    them.
    """

    rate: float | None

    def can_update(self) -> bool:
        """Return whether an update in the backward pass is exact for this instance."""


@runtime_checkable
class HasBasicOperations(Protocol):
    """A layer with a second form of its forward pass."""

    def use_basic_operations(self) -> None:
        """Switch to operations that `torch.func.vmap` supports. Results are equal up to rounding."""


def declares(module: nn.Module, capability: str) -> bool:
    """Return whether the class of `module` itself declares the capability."""
    return bool(vars(type(module)).get(capability, False))


def has_gradient_hooks(module: nn.Module) -> bool:
    """Return whether a parameter has a hook that can change its gradient."""
    return any(p._backward_hooks for p in module.parameters())


def self_updating_layers(module: nn.Module) -> list[SelfUpdating]:
    """Return the layers of `module` that may update themselves in the backward pass.

    The list is empty if the result could differ: the model must declare `each_layer_once`, all parameters
    must be trainable, and gradient hooks must be absent.
    """
    if not declares(module, "each_layer_once") or has_gradient_hooks(module):
        return []
    if any(not p.requires_grad for p in module.parameters()):
        return []
    layers = [layer for layer in module.modules() if declares(layer, "updates_in_backward")]
    return [layer for layer in cast("list[SelfUpdating]", layers) if layer.can_update()]
