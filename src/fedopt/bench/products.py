"""The matrix products in a step of each network: what a machine could not do without.

A convolution is the product of its unfolded images with its kernel; an LSTM multiplies its inputs of all
steps at once, and its state step by step. Backward has two products for each weight, for its own gradient
and for that of its inputs; where the inputs are data, the second one is not needed and not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedopt.models.emnist import Autoencoder
from fedopt.models.resnet import BLOCKS, WIDTHS


class Layer(NamedTuple):
    """A weight of `outputs` x `inputs` that is applied `rows` times to every example."""

    name: str
    rows: int
    inputs: int
    outputs: int
    recurrent: bool = False  # its rows come one after the other
    on_data: bool = False  # its inputs need no gradient


class Product(NamedTuple):
    """`times` products of (m, k) with (k, n). `of` says which of a layer's three it is."""

    of: str  # outputs = inputs weight'; weight = outputs' inputs; inputs = outputs weight
    m: int
    k: int
    n: int
    times: int = 1

    @property
    def multiply_adds(self) -> int:
        return self.m * self.k * self.n * self.times


def _cnn(classes: int = 62) -> list[Layer]:
    return [
        Layer("conv1", 26 * 26, 9, 32, on_data=True),
        Layer("conv2", 24 * 24, 9 * 32, 64),
        Layer("dense1", 1, 12 * 12 * 64, 128),
        Layer("dense2", 1, 128, classes),
    ]


def _autoencoder() -> list[Layer]:
    widths = Autoencoder.WIDTHS
    return [
        Layer(f"dense{i}", 1, a, b, on_data=i == 0)
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False))
    ]


def _resnet(classes: int) -> list[Layer]:
    layers = [Layer("conv", 12 * 12, 7 * 7 * 3, WIDTHS[0], on_data=True)]
    inputs = WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        for block in range(BLOCKS):
            layers.append(Layer(f"conv{stage}.{block}.1", 36, 9 * inputs, width))
            layers.append(Layer(f"conv{stage}.{block}.2", 36, 9 * width, width))
            if inputs != width:
                layers.append(Layer(f"shortcut{stage}", 36, inputs, width))
            inputs = width
    return [*layers, Layer("dense", 1, inputs, classes)]


def _lstm(name: str, steps: int, inputs: int, units: int) -> list[Layer]:
    return [
        Layer(f"{name}.kernel", steps, inputs, 4 * units),
        Layer(f"{name}.recurrent", steps, units, 4 * units, recurrent=True),
    ]


def _next_character() -> list[Layer]:
    return [*_lstm("lstm1", 80, 8, 256), *_lstm("lstm2", 80, 256, 256), Layer("dense", 80, 256, 90)]


def _next_word() -> list[Layer]:
    return [
        *_lstm("lstm", 20, 96, 670),
        Layer("projection", 20, 670, 96),
        Layer("dense", 20, 96, 10_004),
    ]


# so_lr: as it would be with the bags written out; ours adds up the rows of their words instead.
LAYERS: Mapping[str, Sequence[Layer]] = {
    "cifar10": _resnet(10),
    "cifar100": _resnet(100),
    "emnist_cr": _cnn(),
    "emnist_ae": _autoencoder(),
    "shakespeare": _next_character(),
    "so_nwp": _next_word(),
    "so_lr": [Layer("kernel", 1, 10_000, 500, on_data=True)],
}


def products(task: str, batch: int) -> list[Product]:
    """Those of one step on `batch` examples, forward and backward."""
    found = []
    for layer in LAYERS[task]:
        m = batch * layer.rows
        each, times = (batch, layer.rows) if layer.recurrent else (m, 1)
        found.append(Product("outputs", each, layer.inputs, layer.outputs, times))
        found.append(Product("weight", layer.outputs, m, layer.inputs))
        if not layer.on_data:
            found.append(Product("inputs", each, layer.outputs, layer.inputs, times))
    return found


def multiply_adds(task: str, examples: int) -> int:
    """Of all products in training once on `examples` examples.

    >>> multiply_adds("so_lr", 100) == 2 * 100 * 10_000 * 500  # forward, and the weight's gradient
    True
    """
    return sum(product.multiply_adds for product in products(task, examples))
