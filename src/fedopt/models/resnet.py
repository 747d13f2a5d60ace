"""ResNet-18 as the authors ran it on CIFAR: pre-activation, group normalisation, four stages of one size.

A 24 x 24 image is halved twice at the start and never again, because the code does not pass strides to the
stages: all four work on 6 x 6. torchvision's ResNet-18 has as many parameters and is another network.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedopt.models.keras import he_normal_

GROUPS = 2
EPSILON = 1e-3  # TensorFlow Addons' default
WIDTHS = (64, 128, 256, 512)
BLOCKS = 2  # per stage


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
    he_normal_(layer.weight)
    return layer


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, channels, EPSILON)


def _norm_relu(channels: int) -> nn.Sequential:
    return nn.Sequential(_norm(channels), nn.ReLU(inplace=True))


class Block(nn.Module):
    """Norm, ReLU, convolution, twice, beside a shortcut from the block's own input."""

    def __init__(self, inputs: int, outputs: int, first: bool) -> None:
        super().__init__()
        # The very first block finds its input normalised and rectified.
        self.before: nn.Module = nn.Identity() if first else _norm_relu(inputs)
        self.conv1 = _conv(inputs, outputs, 3, padding=1)
        self.between = _norm_relu(outputs)
        self.conv2 = _conv(outputs, outputs, 3, padding=1)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1), _norm(outputs))

    def forward(self, x: Tensor) -> Tensor:  # (B, inputs, 6, 6) -> (B, outputs, 6, 6)
        h = self.conv2(self.between(self.conv1(self.before(x))))
        out: Tensor = self.shortcut(x) + h
        return out


class ResNet18(nn.Module):
    """11,227,812 parameters for 100 classes, 11,181,642 for 10.

    `l2` weighs the squares of all kernels and of the last bias in the objective (the code has 1e-4, which
    had no effect before July 2020).
    """

    def __init__(self, *, classes: int = 100, l2: float = 0.0) -> None:
        super().__init__()
        self.l2 = l2
        self.conv = _conv(3, WIDTHS[0], 7, stride=2)
        self.first = _norm_relu(WIDTHS[0])
        # TensorFlow's "same" puts the odd pixel of padding at the end, for the pool the only one.
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        blocks: list[nn.Module] = []
        inputs = WIDTHS[0]
        for width in WIDTHS:
            for _ in range(BLOCKS):
                blocks.append(Block(inputs, width, first=not blocks))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.last = _norm_relu(inputs)
        self.dense = nn.Linear(inputs, classes)
        nn.init.normal_(self.dense.weight, std=0.01)
        nn.init.zeros_(self.dense.bias)

    def forward(self, images: Tensor) -> Tensor:  # (B, 3, 24, 24) -> (B, classes)
        h = self.conv(F.pad(images, (2, 3, 2, 3)))
        h = self.last(self.blocks(self.pool(self.first(h))))
        logits: Tensor = self.dense(h.mean((2, 3)))
        return logits

    def penalty(self) -> Tensor:
        """l2 times the sum of squares, without the normalisation's own parameters."""
        if self.l2 == 0:  # the usual case costs nothing
            return self.dense.bias.new_zeros(())
        decayed = [p for p in self.parameters() if p.ndim > 1] + [self.dense.bias]
        return self.l2 * torch.stack([p.square().sum() for p in decayed]).sum()
