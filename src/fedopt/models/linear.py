"""Tag prediction: logistic regression on bags of words, one classifier per tag."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TagRegression(nn.Module):
    """10,000 words to 500 tags, 5,000,500 parameters; the sigmoid is part of the loss.

    The input holds the words of each text, numbered from 1, with 0 for no word. A bag holds a few of the
    10,000 words, so its product with the kernel is computed as a sum of a few rows. A word outside the
    vocabulary has no row, but it counts when the sum is divided by the number of words.
    """

    each_layer_once = updates_in_backward = zero_padded_inputs = True
    rate: float | None = None  # while it is set, the backward pass updates kernel and bias
    _basic = False

    def __init__(self, *, vocabulary: int = 10_000, tags: int = 500) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(vocabulary, tags))
        self.bias = nn.Parameter(torch.zeros(tags))
        nn.init.xavier_uniform_(self.kernel)

    def extra_repr(self) -> str:
        return f"vocabulary={self.kernel.shape[0]}, tags={self.kernel.shape[1]}"

    def can_update(self) -> bool:
        return True

    def use_basic_operations(self) -> None:
        self._basic = True

    def forward(self, words: Tensor) -> Tensor:  # (B, words) -> (B, tags)
        present = words > 0
        known = present & (words <= len(self.kernel))
        lengths = present.sum(1, keepdim=True).clamp(min=1)  # texts without words
        if self._basic:
            return self._whole_bags(words, known) @ self.kernel / lengths + self.bias
        rows, counts = words.masked_select(known) - 1, known.sum(1)
        if self.rate is None or not torch.is_grad_enabled():
            return _bags(self.kernel, rows, counts) / lengths + self.bias
        out: Tensor = _SelfUpdatingRegression.apply(  # type: ignore[no-untyped-call]
            self.kernel, self.bias, rows, counts, lengths, self.rate
        )
        return out

    def _whole_bags(self, words: Tensor, known: Tensor) -> Tensor:  # (B, vocabulary)
        empty = self.bias.new_zeros(len(words), 1 + len(self.kernel))
        # Unknown words add 0 to column 0.
        return empty.scatter_add(1, words * known, known.to(empty.dtype))[:, 1:]


def _bags(table: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """Return sums of consecutive `rows` of the table; `counts` are the numbers of rows per sum."""
    return F.embedding_bag(rows, table, counts.cumsum(0) - counts, mode="sum")


class _SelfUpdatingRegression(torch.autograd.Function):
    """The outputs of `TagRegression`. `backward` updates the bias and the rows that occur in the batch.

    The gradient of a row is the sum of the outer gradient over the texts that contain the word.
    """

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, bias: Tensor, rows: Tensor, counts: Tensor, lengths: Tensor, rate: float
    ) -> Tensor:
        ctx.save_for_backward(table, bias, rows, counts, lengths)
        ctx.rate = rate
        sums = _bags(table.detach(), rows, counts)  # detached: torch prepares no gradient
        return sums / lengths + bias

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        table, bias, rows, counts, lengths = ctx.saved_tensors
        outer: Tensor = gradients[0]
        bias.sub_(outer.sum(0), alpha=ctx.rate)
        order = _stable_order(rows, len(table))
        texts = torch.repeat_interleave(counts)[order]
        touched, occurrences = torch.unique_consecutive(rows[order], return_counts=True)
        table.index_add_(0, touched, _bags(outer / lengths, texts, occurrences), alpha=-ctx.rate)
        return (None,) * 6


def _stable_order(numbers: Tensor, limit: int) -> Tensor:
    """Return the order that sorts `numbers`, which are below `limit`. Equal numbers keep their order.

    NumPy sorts numbers of 16 bits by their digits, in a third of the time of `torch.sort`.
    """
    if numbers.device.type != "cpu":
        return torch.sort(numbers, stable=True).indices
    short = numbers.numpy().astype(np.min_scalar_type(limit))
    return torch.from_numpy(np.argsort(short, kind="stable"))
