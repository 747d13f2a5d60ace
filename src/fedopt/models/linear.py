"""Tag prediction: logistic regression on bags of words, one classifier per tag."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TagRegression(nn.Module):
    """10,000 words to 500 tags, 5,000,500 parameters; the sigmoid is part of the loss.

    The input is the words of each text, numbered from 1, with 0 for no word. A bag holds a few of the
    10,000 words, so it is never written out: its product with the kernel is a sum of a few rows. A word
    beyond the vocabulary has no row, and counts where the sum is divided by the number of words.
    """

    fused = True  # False: the same from whole bags, which `torch.func.vmap` knows
    called_once = descends = True
    rate: float | None = None  # see `models.dense`: rows of the kernel move in the backward pass

    def __init__(self, *, vocabulary: int = 10_000, tags: int = 500) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(vocabulary, tags))
        self.bias = nn.Parameter(torch.zeros(tags))
        nn.init.xavier_uniform_(self.kernel)

    def forward(self, words: Tensor) -> Tensor:  # (B, words) -> (B, tags)
        there = words > 0
        known = there & (words <= len(self.kernel))
        lengths = there.sum(1, keepdim=True).clamp(min=1)  # a text without words has an empty bag
        return self._sums(words, known) / lengths + self.bias

    def _sums(self, words: Tensor, known: Tensor) -> Tensor:
        if not self.fused:
            empty = self.bias.new_zeros(len(words), 1 + len(self.kernel))
            bags = empty.scatter_add(1, words * known, known.to(empty.dtype))  # the unknown add 0 to column 0
            return bags[:, 1:] @ self.kernel
        rows, counts = words.masked_select(known) - 1, known.sum(1)
        if self.rate is not None and torch.is_grad_enabled():
            out: Tensor = _MovingRows.apply(self.kernel, rows, counts, self.rate)  # type: ignore[no-untyped-call]
            return out
        return _bags(self.kernel, rows, counts)


def _bags(table: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """Sums of so many rows of the table, one after the other."""
    return F.embedding_bag(rows, table, counts.cumsum(0) - counts, mode="sum")


class _MovingRows(torch.autograd.Function):
    """The same sums; the rows move in `backward`, those of the batch alone.

    The gradient of a row is a sum of rows as well: of the outer gradient, at the texts that have the word.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor, counts: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(table, rows, counts)
        ctx.rate = rate
        return _bags(table, rows, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        table, rows, counts = ctx.saved_tensors
        ordered, order = torch.sort(rows, stable=True)
        texts = torch.repeat_interleave(counts)[order]
        touched, occurrences = torch.unique_consecutive(ordered, return_counts=True)
        table.index_add_(0, touched, _bags(gradients[0], texts, occurrences), alpha=-ctx.rate)
        return None, None, None, None
