"""Dropout with masks from random bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LEVELS = 256


class Dropout(nn.Dropout):
    """nn.Dropout for rates that are multiples of 1/256: one random byte decides on each element.

    torch draws at least 32 bits for each element, which takes as long as a small layer. Drawing eight bytes
    at a time takes a fifth of that.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        kept = _LEVELS * (1 - rate)
        if not kept.is_integer() or not 0 < kept <= _LEVELS:
            raise ValueError(f"a dropout rate must be a multiple of 1/{_LEVELS} below 1, got {rate}")
        self._kept = int(kept)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self._kept == _LEVELS:  # 256 does not fit in a byte
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(1 << 63), None)
        kept = words.view(torch.uint8)[: x.numel()] < self._kept
        mask = kept.to(x.dtype).mul_(_LEVELS / self._kept).view(x.shape)
        return x * mask.to(x.device)
