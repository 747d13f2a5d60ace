"""Losses and metrics, each example by itself, so that any set of examples can be summed up."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """(B, classes), (B,) -> (B,)."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over the pixels of each image: (B, pixels) -> (B,)."""
    return (outputs - targets).square().flatten(1).mean(1)


def accuracy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Right or wrong: (B, classes), (B,) -> (B,), (B,).

    >>> hits, count = accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
    >>> (hits.sum() / count.sum()).item()
    0.5
    """
    hits = (outputs.argmax(-1) == targets).float()
    return hits, torch.ones_like(hits)


def mse(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error over all pixels of all images."""
    errors = squared_error(outputs, targets)
    return errors, torch.ones_like(errors)
