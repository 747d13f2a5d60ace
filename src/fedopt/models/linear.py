"""Tag prediction: logistic regression on bags of words, one classifier per tag."""

from __future__ import annotations

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

    def __init__(self, *, vocabulary: int = 10_000, tags: int = 500) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(vocabulary, tags))
        self.bias = nn.Parameter(torch.zeros(tags))
        nn.init.xavier_uniform_(self.kernel)

    def forward(self, words: Tensor) -> Tensor:  # (B, words) -> (B, tags)
        known = (words > 0) & (words <= len(self.kernel))
        if self.fused:
            counts = known.sum(1)
            starts = counts.cumsum(0) - counts
            sums = F.embedding_bag(words[known] - 1, self.kernel, starts, mode="sum")
        else:
            empty = self.bias.new_zeros(len(words), 1 + len(self.kernel))
            bags = empty.scatter_add(1, words * known, known.to(empty.dtype))  # the unknown add 0 to column 0
            sums = bags[:, 1:] @ self.kernel
        lengths = (words > 0).sum(1, keepdim=True).clamp(min=1)  # a text without words has an empty bag
        return sums / lengths + self.bias
