"""Batches: inputs and targets, each a tensor or nested tuples and dicts of tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from fedopt.errors import ModelError

Nested = Any  # a tensor, or tuples and dicts of nested tensors
Batch = tuple[Nested, Nested]  # inputs and targets


def call_model(module: nn.Module, inputs: Nested) -> Any:
    """Return model(x) for a tensor, model(*inputs) for a tuple and model(**inputs) for a dict.

    A dict with one entry is passed by position if the model has no argument of this name.
    """
    if isinstance(inputs, Tensor):
        return module(inputs)
    positional, named = (), inputs
    if not isinstance(inputs, Mapping):
        positional, named = inputs, {}
    elif len(inputs) == 1 and not _accepts(module, (), inputs):
        positional, named = tuple(inputs.values()), {}
    try:
        return module(*positional, **named)
    except TypeError as error:
        if _accepts(module, positional, named):
            raise
        how = f"the arguments {', '.join(named)}" if named else f"{len(positional)} positional arguments"
        raise ModelError(
            f"the model is called with {how}, which its forward function does not accept; "
            f"it is forward{_signature(module)}",
            what="model",
        ) from error


def count_examples(nested: Nested) -> int:
    """Return the number of rows of the first tensor."""
    while not isinstance(nested, Tensor):
        nested = next(iter(nested.values() if isinstance(nested, Mapping) else nested))
    return len(nested)


def has_nan(nested: Nested) -> bool:
    """Return whether some element of a tensor is not a number."""
    if isinstance(nested, Tensor):
        return bool(nested.isnan().any())
    return any(map(has_nan, nested.values() if isinstance(nested, Mapping) else nested))


def map_tensors(function: Callable[[Tensor], Tensor], nested: Nested) -> Nested:
    """Apply a function to every tensor."""
    if isinstance(nested, Tensor):
        return function(nested)
    if isinstance(nested, Mapping):
        return {key: map_tensors(function, value) for key, value in nested.items()}
    return tuple(map_tensors(function, value) for value in nested)


def _signature(module: nn.Module) -> inspect.Signature:
    return inspect.signature(module.forward)


def _accepts(module: nn.Module, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    try:
        _signature(module).bind(*positional, **named)
    except TypeError:
        return False
    return True
