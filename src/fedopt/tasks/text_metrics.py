"""What the text tasks have in common: targets, losses, metrics. A metric leaves tokens out by the target."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedopt.data.text import PAD
from fedopt.tasks.base import Batch


def shifted(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    """All tokens but the last, and all but the first."""
    rows = examples[0].long()
    return rows[:, :-1], rows[:, 1:]


def predicted_tokens(examples: tuple[Tensor, ...]) -> int:
    """What the authors' code of 2020-09 weighted clients by: the targets that are no padding."""
    return int((examples[0][:, 1:] != PAD).sum())


def token_loss(outputs: Tensor, targets: Tensor, *, masked: bool = False) -> Tensor:
    """Cross-entropy of the next token: (B, T, vocabulary), (B, T) -> (B,), or a scalar where masked.

    Each example's mean over all its positions, padding included, is what the authors' code computes, and
    what the published rates were tuned for. `masked` is the mean over the batch's real tokens.
    """
    losses = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    if not masked:
        return losses.mean(1)
    real = targets != PAD
    return (losses * real).sum() / real.sum().clamp(min=1)


def token_accuracy(
    outputs: Tensor, targets: Tensor, left_out: tuple[int, ...] = (PAD,)
) -> tuple[Tensor, Tensor]:
    """Right predictions and predictions of each example, where the target is none of `left_out`.

    >>> hits, count = token_accuracy(torch.eye(3)[None], torch.tensor([[0, 1, 1]]))
    >>> (hits.sum() / count.sum()).item()
    0.5
    """
    counted = torch.ones_like(targets, dtype=torch.bool)
    for token in left_out:
        counted &= targets != token
    hits = (outputs.argmax(-1) == targets) & counted
    return hits.sum(1), counted.sum(1)


def tag_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy, the mean over the tags: (B, tags), (B, tags) -> (B,)."""
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)


def precision(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """True tags among those given a probability above one half, and how many those are."""
    named = (outputs > 0).float()
    return (named * targets).sum(1), named.sum(1)


def recall_at_5(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """True tags among the five likeliest, and true tags, of each example (so a micro-average).

    >>> found, true = recall_at_5(torch.arange(8.0)[None], torch.tensor([[1.0, 0, 0, 0, 0, 0, 1, 1]]))
    >>> found.item(), true.item()
    (2.0, 3.0)
    """
    return targets.gather(1, outputs.topk(5, dim=1).indices).sum(1), targets.sum(1)
