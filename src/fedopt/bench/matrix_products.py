"""The matrix products in one training step of each network, as a lower bound of its time.

A convolution is the product of its unfolded images with its kernel. An LSTM multiplies the inputs of all time
steps at once and its state step by step. The backward pass has two products per weight: one for the gradient
of the weight and one for the gradient of the inputs. The second is not needed where the inputs are data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedopt.models.emnist import Autoencoder
from fedopt.models.resnet import BLOCKS, WIDTHS


class WeightLayer(NamedTuple):
    """A weight matrix of `outputs` x `inputs` that is applied to `rows` rows per example."""

    name: str
    rows: int
    inputs: int
    outputs: int
    recurrent: bool = False  # rows are processed one after the other
    on_data: bool = False  # the inputs need no gradient


class MatrixProduct(NamedTuple):
    """`times` products of an (m, k) matrix with a (k, n) matrix.

    `result` is one of the three products of a layer, with T for the transpose and d for the gradient:
    outputs = inputs weight^T, weight: d_weight = d_outputs^T inputs, inputs: d_inputs = d_outputs weight.
    """

    result: str
    m: int
    k: int
    n: int
    times: int = 1

    @property
    def multiply_adds(self) -> int:
        return self.m * self.k * self.n * self.times


def _cnn(classes: int = 62) -> list[WeightLayer]:
    return [
        WeightLayer("conv1", 26 * 26, 9, 32, on_data=True),
        WeightLayer("conv2", 24 * 24, 9 * 32, 64),
        WeightLayer("dense1", 1, 12 * 12 * 64, 128),
        WeightLayer("dense2", 1, 128, classes),
    ]


def _autoencoder() -> list[WeightLayer]:
    widths = Autoencoder.WIDTHS
    return [
        WeightLayer(f"dense{i}", 1, a, b, on_data=i == 0)
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False))
    ]


def _resnet(classes: int) -> list[WeightLayer]:
    layers = [WeightLayer("conv", 12 * 12, 7 * 7 * 3, WIDTHS[0], on_data=True)]
    inputs = WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        for block in range(BLOCKS):
            layers.append(WeightLayer(f"conv{stage}.{block}.1", 36, 9 * inputs, width))
            layers.append(WeightLayer(f"conv{stage}.{block}.2", 36, 9 * width, width))
            if inputs != width:
                layers.append(WeightLayer(f"shortcut{stage}", 36, inputs, width))
            inputs = width
    return [*layers, WeightLayer("dense", 1, inputs, classes)]


def _lstm(name: str, steps: int, inputs: int, units: int) -> list[WeightLayer]:
    return [
        WeightLayer(f"{name}.kernel", steps, inputs, 4 * units),
        WeightLayer(f"{name}.recurrent", steps, units, 4 * units, recurrent=True),
    ]


def _next_character() -> list[WeightLayer]:
    return [*_lstm("lstm1", 80, 8, 256), *_lstm("lstm2", 80, 256, 256), WeightLayer("dense", 80, 256, 90)]


def _next_word() -> list[WeightLayer]:
    return [
        *_lstm("lstm", 20, 96, 670),
        WeightLayer("projection", 20, 670, 96),
        WeightLayer("dense", 20, 96, 10_004),
    ]


# so_lr: the product with dense bags of words. The engine sums the rows of the present words instead.
LAYERS: Mapping[str, Sequence[WeightLayer]] = {
    "cifar10": _resnet(10),
    "cifar100": _resnet(100),
    "emnist_cr": _cnn(),
    "emnist_ae": _autoencoder(),
    "shakespeare": _next_character(),
    "so_nwp": _next_word(),
    "so_lr": [WeightLayer("kernel", 1, 10_000, 500, on_data=True)],
    "synthetic_lr": [WeightLayer("dense", 1, 60, 10, on_data=True)],
    "synthetic_mlp": [WeightLayer("dense1", 1, 60, 32, on_data=True), WeightLayer("dense2", 1, 32, 10)],
}


def list_products(task: str, batch_size: int) -> list[MatrixProduct]:
    """Return the products of one forward and backward pass."""
    products = []
    for layer in LAYERS[task]:
        rows = batch_size * layer.rows
        m, times = (batch_size, layer.rows) if layer.recurrent else (rows, 1)
        products.append(MatrixProduct("outputs", m, layer.inputs, layer.outputs, times))
        products.append(MatrixProduct("weight", layer.outputs, rows, layer.inputs))
        if not layer.on_data:
            products.append(MatrixProduct("inputs", m, layer.outputs, layer.inputs, times))
    return products


def count_multiply_adds(task: str, examples: int) -> int:
    """Return the number of multiply-adds for training once on `examples` examples.

    >>> count_multiply_adds("so_lr", 100) == 2 * 100 * 10_000 * 500  # forward, and the weight's gradient
    True
    """
    return sum(product.multiply_adds for product in list_products(task, examples))
