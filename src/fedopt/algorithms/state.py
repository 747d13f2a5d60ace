"""A state as its vectors by name, and back: what checkpoints and checks see of any algorithm."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedopt.algorithms.base import State
from fedopt.errors import UserError


def flatten(state: State, prefix: str = "") -> dict[str, torch.Tensor]:
    """The vectors of a state by name; a nested state's names stand by themselves: x, m, v."""
    if isinstance(state, torch.Tensor):
        return {prefix: state}
    if not isinstance(state, tuple):
        raise UserError(
            f"{prefix or 'the state'} is a {type(state).__name__}; a state is a tensor or a (named) tuple of "
            "tensors"
        )
    names = getattr(state, "_fields", tuple(f"s{i}" for i in range(len(state))))
    vectors: dict[str, torch.Tensor] = {}
    for name, value in zip(names, state, strict=True):
        found = flatten(value, name)
        if twice := vectors.keys() & found.keys():
            raise UserError(f"two vectors of the state are named {min(twice)!r}; rename one")
        vectors |= found
    return vectors


def unflatten(like: State, vectors: dict[str, torch.Tensor], prefix: str = "") -> State:
    """A state of the same shape as `like` with these vectors."""
    if isinstance(like, torch.Tensor):
        if vectors[prefix].shape != like.shape:
            raise ValueError(f"{prefix} has shape {tuple(vectors[prefix].shape)}, not {tuple(like.shape)}")
        return vectors[prefix]
    names = getattr(like, "_fields", tuple(f"s{i}" for i in range(len(like))))
    parts = [unflatten(value, vectors, name) for name, value in zip(names, like, strict=True)]
    return _of_form(like, parts)


def mapped(state: State, change: Callable[[torch.Tensor], torch.Tensor]) -> State:
    """A state of the same form with every vector changed."""
    if isinstance(state, torch.Tensor):
        return change(state)
    return _of_form(state, [mapped(value, change) for value in state])


def _of_form(like: State, parts: list[State]) -> State:
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def is_finite(state: State) -> bool:
    """Whether every vector of a state is finite."""
    return all(map(all_finite, flatten(state).values()))


def all_finite(v: torch.Tensor) -> bool:
    """Whether every element is finite: surely if their sum is, which takes one pass and no memory."""
    return bool(torch.isfinite(v.sum())) or bool(torch.isfinite(v).all())
