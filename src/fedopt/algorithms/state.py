"""Convert the state of any algorithm to vectors by name and back, for checkpoints and checks."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import torch

from fedopt.algorithms.base import State
from fedopt.errors import ModelError


def flatten(state: State, prefix: str = "") -> dict[str, torch.Tensor]:
    """Return the vectors of a state by name. Names of nested states have no prefix: x, m, v."""
    if isinstance(state, torch.Tensor):
        return {prefix: state}
    if not isinstance(state, tuple):
        raise ModelError(
            f"{prefix or 'the state'} is a {type(state).__name__}; use a (named) tuple of tensors",
            what="state",
        )
    vectors: dict[str, torch.Tensor] = {}
    for name, value in zip(_field_names(state), state, strict=True):
        nested = flatten(value, name)
        if duplicates := vectors.keys() & nested.keys():
            raise ModelError(
                f"two vectors of the state have the name {min(duplicates)!r}; rename one", what="state"
            )
        vectors |= nested
    return vectors


def unflatten(like: State, vectors: dict[str, torch.Tensor], prefix: str = "") -> State:
    """Build a state of the same form as `like` from these vectors."""
    if isinstance(like, torch.Tensor):
        if vectors[prefix].shape != like.shape:
            raise ValueError(f"{prefix} has shape {tuple(vectors[prefix].shape)}, not {tuple(like.shape)}")
        if vectors[prefix].dtype != like.dtype:
            raise ValueError(f"{prefix} is {vectors[prefix].dtype}, not {like.dtype}")
        return vectors[prefix]
    names = _field_names(like)
    return _rebuild(like, [unflatten(value, vectors, n) for n, value in zip(names, like, strict=True)])


def map_vectors(state: State, function: Callable[[torch.Tensor], torch.Tensor]) -> State:
    """Apply a function to every vector and return a state of the same form."""
    if isinstance(state, torch.Tensor):
        return function(state)
    return _rebuild(state, [map_vectors(value, function) for value in state])


def has_form_of(state: State, like: State) -> bool:
    """Return whether two states have the same nested tuples of vectors with the same shapes and types."""
    if isinstance(like, torch.Tensor):
        return isinstance(state, torch.Tensor) and state.shape == like.shape and state.dtype == like.dtype
    if not isinstance(state, tuple) or _field_names(state) != _field_names(like):
        return False
    return all(map(has_form_of, state, like))


def _field_names(state: State) -> tuple[str, ...]:
    return tuple(getattr(state, "_fields", (f"s{i}" for i in range(len(state)))))


def _rebuild(like: State, values: list[State]) -> State:
    return type(like)(*values) if hasattr(like, "_fields") else tuple(values)


def is_finite(state: State) -> bool:
    """Return whether every vector of a state is finite."""
    if isinstance(state, torch.Tensor):
        return all_finite(state)
    return all(map(is_finite, state))


def all_finite(v: torch.Tensor) -> bool:
    """Return whether every element is finite. A finite sum proves it in one pass without extra memory."""
    return isfinite(v.sum().item()) or bool(torch.isfinite(v).all())
