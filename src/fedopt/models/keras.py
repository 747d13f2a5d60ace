"""Initialisers as Keras has them, where torch's differ: the published rates were tuned from these starts."""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedopt.models.dense import Dense

Layer = TypeVar("Layer", Dense, nn.Conv2d)

# The standard deviation of a standard normal that is cut at two; Keras divides by it.
_STD_WHEN_CUT = 0.87962566103423978


def he_normal_(weight: Tensor) -> Tensor:
    """A normal of variance 2 / fan_in, cut at two standard deviations; (out, in, ...).

    What lies outside is drawn again, which is several times as fast as torch's way of cutting.
    """
    with torch.no_grad():
        values = weight.normal_().view(-1)
        outside = (values.abs() > 2).nonzero().squeeze(1)
        while len(outside):
            values[outside] = torch.randn(len(outside))
            outside = outside[values[outside].abs() > 2]
        return weight.mul_(sqrt(2.0 / weight[0].numel()) / _STD_WHEN_CUT)


def embedding(rows: int, width: int) -> nn.Embedding:
    """Uniform in +-0.05, the row of the padding like any other."""
    layer = nn.Embedding(rows, width)
    nn.init.uniform_(layer.weight, -0.05, 0.05)
    return layer


def dense(inputs: int, outputs: int) -> Dense:
    """A Glorot-uniform kernel and a zero bias, Keras' default."""
    return _glorot(Dense(inputs, outputs))


def conv(inputs: int, outputs: int, size: int) -> nn.Conv2d:
    """A convolution without padding, begun like `dense`."""
    return _glorot(nn.Conv2d(inputs, outputs, size))


def _glorot(layer: Layer) -> Layer:
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
