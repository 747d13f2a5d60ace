"""Explain why a loss cannot be computed: outputs that do not match the targets, clients that differ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from fedopt.data import Arrays
from fedopt.errors import ModelError


@contextmanager
def explained_mismatch(outputs: Any, targets: Any) -> Iterator[None]:
    """Replace an error of the loss by one that names the mismatch, if there is an obvious one."""
    try:
        yield
    except Exception as error:
        problem = _find_mismatch(outputs, targets, str(error))
        if problem:
            raise ModelError(problem, what="outputs") from error
        raise


def compare_examples(examples: Arrays, others: Arrays, name: str) -> str:
    """Describe the first difference in type or shape between examples and those of `name`.

    Return "" if there is none. The number of examples does not count.
    """
    titles = ("inputs", "targets") if len(examples) == 2 else [f"array {i}" for i in range(len(examples))]
    for title, array, other in zip(titles, examples, others, strict=False):
        if array.dtype.kind != other.dtype.kind and {array.dtype.kind, other.dtype.kind} != {"i", "u"}:
            return f"its {title} are of type {array.dtype}, those of {name} {other.dtype}"
        if array.shape[1:] != other.shape[1:]:
            return f"its {title} have shape {_row_shape(array)}, those of {name} {_row_shape(other)}"
    return ""


def _row_shape(array: np.ndarray) -> str:
    return f"({', '.join(['n', *map(str, array.shape[1:])])})"


@contextmanager
def broadcasting_refused() -> Iterator[None]:
    """Raise an error where torch only warns: a loss that broadcasts (n, 1) and (n,) compares all pairs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Using a target size")
        yield


def _find_mismatch(outputs: Any, targets: Any, message: str) -> str:
    """Describe the mismatch; "" if there is none that explains an error with this message."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return ""
    shapes = f"the model's outputs have shape {tuple(outputs.shape)}, the targets {tuple(targets.shape)}"
    if targets.is_floating_point():
        if outputs.shape == targets.shape:
            return ""
        return f"{shapes}; reshape one of them, for example with outputs.squeeze(-1) or targets[:, None]"
    if "Using a target size" in message:
        return f"{shapes}; this loss needs equal shapes, and cross_entropy is a loss for class labels"
    if outputs.ndim != 2 or targets.ndim != 1 or len(outputs) != len(targets):
        wanted = outputs.ndim == 2 and len(outputs) == len(targets)
        hint = "class labels need shape (examples,)" if wanted else "classes need outputs (examples, classes)"
        return "" if outputs.ndim > 2 and outputs.ndim == targets.ndim + 1 else f"{shapes}; {hint}"
    if "out of bounds" not in message and "out of range" not in message:
        return ""  # a loss of the user's own may accept any label
    try:
        lowest, highest = int(targets.min()), int(targets.max())
    except RuntimeError:  # in a vectorised computation, which has no single values
        return ""
    classes = outputs.shape[1]
    if 0 <= lowest and highest < classes:
        return ""
    wrong = highest if highest >= classes else lowest
    remedy = f"build the model with at least {highest + 1} outputs, or " if highest >= classes else ""
    return f"the model has {classes} outputs, and a label is {wrong}; {remedy}number the labels from 0"
