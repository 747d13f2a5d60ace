"""Losses and metrics per example, so that they can be summed over any set of examples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
    hits = (outputs.argmax(-1) == targets).float()
    return hits, torch.ones_like(hits)


def mse(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error over all pixels of all images, as numerators and denominators."""
    errors = squared_error(outputs, targets)
    return errors, torch.ones_like(errors)
