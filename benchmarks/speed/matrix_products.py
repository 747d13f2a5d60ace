"""The matrix products in one training step of each network, and their time, a lower bound of its time.

A convolution is the product of its unfolded images with its kernel. An LSTM multiplies the inputs of all time
steps at once and its state step by step. The backward pass has two products per weight: one for the gradient
of the weight and one for the gradient of the inputs. The second is not needed where the inputs are data.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import torch.multiprocessing as multiprocessing

from fedopt.engine.worker_server import worker_environment
from fedopt.errors import WorkerError
from fedopt.models.emnist import Autoencoder
from fedopt.models.resnet import BLOCKS, WIDTHS

_SECONDS = 0.5  # minimum length of a measurement; it covers at least one pass over all products


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


class GemmProcesses:
    """One single-threaded process per core. All compute the products of a training step at the same time."""

    def __init__(self, products: Sequence[MatrixProduct], workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = []
        with worker_environment():
            for _ in range(workers):
                connection, remote = context.Pipe()
                process = context.Process(target=_serve, args=(remote, list(products)), daemon=True)
                process.start()
                remote.close()
                self._processes.append((process, connection))
        self._measure(0.0)  # the first pass allocates memory and does not count

    def step_seconds(self) -> float:
        """Return the mean time of one pass over the products while all processes compute."""
        seconds = self._measure(_SECONDS)
        return sum(seconds) / len(seconds)

    def _measure(self, minimum_seconds: float) -> list[float]:
        try:
            for _, connection in self._processes:
                connection.send(minimum_seconds)
            return [connection.recv() for _, connection in self._processes]
        except (EOFError, OSError):
            raise WorkerError(
                "a process that computes matrix products ended, possibly out of memory; use fewer --workers"
            ) from None

    def close(self) -> None:
        for process, connection in self._processes:
            connection.close()
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(connection: Connection[Any, Any], products: list[MatrixProduct]) -> None:
    torch.set_num_threads(1)
    operands = [_allocate_operands(product) for product in products]
    try:
        while True:
            minimum_seconds = connection.recv()
            passes, start = 0, time.perf_counter()
            while not passes or time.perf_counter() - start < minimum_seconds:
                for product, (a, b, out) in zip(products, operands, strict=True):
                    for _ in range(product.times):
                        torch.mm(a, b, out=out)
                passes += 1
            connection.send((time.perf_counter() - start) / passes)
    except (EOFError, OSError):
        return


def _allocate_operands(product: MatrixProduct) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Allocate matrices with the memory layout of a step: weights by output, activations by example."""
    _, m, k, n, _ = product
    if product.result == "outputs":
        a, b = torch.randn(m, k), torch.randn(n, k).t()
    elif product.result == "weight":
        a, b = torch.randn(k, m).t(), torch.randn(k, n)
    else:
        a, b = torch.randn(m, k), torch.randn(k, n)
    return a, b, torch.empty(m, n)
