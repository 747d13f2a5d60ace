"""Targets, losses and metrics of the text tasks. Metrics exclude tokens by their target."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedopt.data.text import PAD
from fedopt.tasks.batch import Batch


def shift_tokens(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    """Return all tokens but the last as inputs, and all but the first as targets."""
    rows = examples[0].long()
    return rows[:, :-1], rows[:, 1:]


def count_target_tokens(examples: tuple[Tensor, ...]) -> int:
    """Return the number of targets without padding, the client weight in the authors' code of 2020-09."""
    return int((examples[0][:, 1:] != PAD).sum())


def token_loss(outputs: Tensor, targets: Tensor, *, masked: bool = False) -> Tensor:
    """Cross-entropy of the next token: (B, T, vocabulary), (B, T) -> (B,), or a scalar if masked.

    The default is the mean over all positions of an example including padding, as in the authors' code, for
    which the published rates were tuned. `masked` is the mean over all tokens of the batch without padding.
    """
    losses = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    if not masked:
        return losses.mean(1)
    real = targets != PAD
    return (losses * real).sum() / real.sum().clamp(min=1)


def token_accuracy(
    outputs: Tensor, targets: Tensor, excluded: tuple[int, ...] = (PAD,)
) -> tuple[Tensor, Tensor]:
    """Correct predictions and number of predictions of each example. Targets in `excluded` do not count.

    >>> hits, count = token_accuracy(torch.eye(3)[None], torch.tensor([[0, 1, 1]]))
    >>> (hits.sum() / count.sum()).item()
    0.5
    """
    counted = torch.ones_like(targets, dtype=torch.bool)
    for token in excluded:
        counted &= targets != token
    hits = (outputs.argmax(-1) == targets) & counted
    return hits.sum(1), counted.sum(1)


def tag_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy, mean over the tags: (B, tags), (B, tags) -> (B,)."""
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)


def precision(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """True positives and predicted tags of each example. A tag is predicted above a probability of 1/2."""
    predicted = (outputs > 0).float()
    return (predicted * targets).sum(1), predicted.sum(1)


def recall_at_5(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """True tags among the five most likely tags, and true tags, of each example (a micro-average).

    >>> found, true = recall_at_5(torch.arange(8.0)[None], torch.tensor([[1.0, 0, 0, 0, 0, 0, 1, 1]]))
    >>> found.item(), true.item()
    (2.0, 3.0)
    """
    return targets.gather(1, outputs.topk(5, dim=1).indices).sum(1), targets.sum(1)
