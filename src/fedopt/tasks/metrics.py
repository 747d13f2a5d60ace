"""Losses and metrics per example, so that they can be summed over any set of examples."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedopt.errors import ModelError


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy: (B, classes), (B,) -> (B,)."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each image: (B, pixels) -> (B,)."""
    return (outputs - targets).square().flatten(1).mean(1)


def accuracy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Correct predictions and number of predictions: (B, classes), (B,) -> (B,), (B,).

    >>> hits, count = accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
    >>> (hits.sum() / count.sum()).item()
    0.5
    """
    if not has_class_scores(outputs, targets):
        shape = f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ModelError(
            "accuracy needs one output for each of at least two classes, and the outputs are "
            f"{shape}; pass metrics=, for example one that compares a single logit with 0",
            what="metrics",
        )
    hits = (outputs.argmax(-1) == targets).float()
    return hits, torch.ones_like(hits)


def has_class_scores(outputs: Any, targets: Any) -> bool:
    """Return whether the outputs are scores of at least two classes for each target.

    >>> labels = torch.zeros(4)
    >>> has_class_scores(torch.zeros(4, 3), labels), has_class_scores(torch.zeros(4, 1), labels)
    (True, False)
    """
    return (
        isinstance(outputs, Tensor)
        and isinstance(targets, Tensor)
        and outputs.ndim == targets.ndim + 1
        and outputs.shape[-1] > 1
    )


def mse(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error over all pixels of all images, as numerators and denominators."""
    errors = squared_error(outputs, targets)
    return errors, torch.ones_like(errors)
