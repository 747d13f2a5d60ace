"""Initialisers of Keras that differ from those of torch. The published rates were tuned with them."""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedopt.models.dense import Dense

Layer = TypeVar("Layer", Dense, nn.Conv2d)

# Standard deviation of a standard normal truncated at two. Keras divides by it.
_TRUNCATED_STD = 0.87962566103423978


def he_normal_(weight: Tensor) -> Tensor:
    """Fill (out, in, ...) from a normal of variance 2 / fan_in, truncated at two standard deviations.

    Values outside are drawn again, which is several times faster than torch's truncated normal.
    """
    with torch.no_grad():
        values = weight.normal_().view(-1)
        outside = (values.abs() > 2).nonzero().squeeze(1)
        while len(outside):
            values[outside] = torch.randn(len(outside))
            outside = outside[values[outside].abs() > 2]
        return weight.mul_(sqrt(2.0 / weight[0].numel()) / _TRUNCATED_STD)


def embedding(rows: int, width: int) -> nn.Embedding:
    """Build an embedding, uniform in +-0.05, including the row of the padding."""
    layer = nn.Embedding(rows, width)
    nn.init.uniform_(layer.weight, -0.05, 0.05)
    return layer


def dense(inputs: int, outputs: int) -> Dense:
    """Build a dense layer with a Glorot-uniform kernel and a zero bias, the default of Keras."""
    return _glorot(Dense(inputs, outputs))


def conv(inputs: int, outputs: int, size: int) -> nn.Conv2d:
    """Build a convolution without padding, initialised like `dense`."""
    return _glorot(nn.Conv2d(inputs, outputs, size))


def _glorot(layer: Layer) -> Layer:
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
