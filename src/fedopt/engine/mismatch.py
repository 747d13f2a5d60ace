"""Explain why a loss cannot be computed from the outputs of a model and the targets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

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
