"""ResNet-18 as the authors ran it on CIFAR: pre-activation, group normalisation, four stages of one size.

The authors' code does not pass strides to the stages. A 24 x 24 image is halved twice at the start, and all
four stages work on 6 x 6. torchvision's ResNet-18 has the same number of parameters but is a different
network.
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
    """Norm, ReLU and convolution, twice, with a shortcut from the input of the block."""

    def __init__(self, inputs: int, outputs: int, first: bool) -> None:
        super().__init__()
        # The input of the first block is already normalised and rectified.
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

    `l2` is the weight of the squared kernels and the last bias in the objective. The authors' code has 1e-4,
    which had no effect before July 2020.
    """

    def __init__(self, *, classes: int = 100, l2: float = 0.0) -> None:
        super().__init__()
        self.l2 = l2
        self.conv = _conv(3, WIDTHS[0], 7, stride=2)
        self.first = _norm_relu(WIDTHS[0])
        # TensorFlow's "same" padding adds the odd pixel at the end.
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
        """Return l2 times the sum of squares, without the parameters of the normalisation layers."""
        if self.l2 == 0:
            return self.dense.bias.new_zeros(())
        decayed = [p for p in self.parameters() if p.ndim > 1] + [self.dense.bias]
        return self.l2 * torch.stack([p.square().sum() for p in decayed]).sum()
