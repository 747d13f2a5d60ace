"""Dropout whose masks cost little beside the layers that they are for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LEVELS = 256


class Dropout(nn.Dropout):
    """nn.Dropout at a rate of so many 256ths: a byte from torch's generator decides on each number.

    torch draws a number of 32 bits or more for each, which takes as long as a small layer; bytes that are
    drawn eight at a time take a fifth of that.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        kept = _LEVELS * (1 - rate)
        if not kept.is_integer() or not 0 < kept <= _LEVELS:
            raise ValueError(f"a dropout rate must be a multiple of 1/{_LEVELS} below 1, got {rate}")
        self._kept = int(kept)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self._kept == _LEVELS:  # which is no byte
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(1 << 63), None)
        kept = words.view(torch.uint8)[: x.numel()] < self._kept
        mask = kept.to(x.dtype).mul_(_LEVELS / self._kept).view(x.shape)
        return x * mask.to(x.device)
