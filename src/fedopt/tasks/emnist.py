"""EMNIST: character recognition and the autoencoder, on 3,400 writers.

Pixels are 1 on the background and 0 on ink, as in the public files; the autoencoder sees them inverted,
as the authors' code does.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedopt.data import Arrays, Federation
from fedopt.data.synthetic import emnist as synthetic_emnist
from fedopt.models.emnist import ACTIVATIONS, Autoencoder, CharacterCNN
from fedopt.tasks.base import Batch, LogRange, PaperSettings, Rates, Task
from fedopt.tasks.metrics import accuracy, cross_entropy, mse, squared_error
from fedopt.tasks.task_data import Columns, Raw, federation, open_raw


def _twin(split: str) -> Raw:
    return Raw(synthetic_emnist.ids(), synthetic_emnist.sizes(split), partial(_written, split))


def _written(split: str, index: int) -> Columns:
    pixels, label = synthetic_emnist.examples(split, index)
    return {"pixels": pixels, "label": label}


def _encoded(columns: Columns) -> Arrays:
    pixels, label = columns["pixels"], columns["label"]
    assert isinstance(pixels, np.ndarray) and isinstance(label, np.ndarray)
    return pixels, label.astype(np.int64)


def emnist(source: str, *, clients: int = 0) -> Federation:
    """EMNIST by writer: the first `clients` writers, or all of them."""
    train, test = open_raw(source, "emnist", _twin, clients)
    return federation(source, train, test, _encoded)


def _brightness(pixels: Tensor) -> Tensor:
    """From 0 to 1; a store keeps pixels of 256 levels in bytes."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def _characters(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    pixels, labels = examples
    return _brightness(pixels), labels


def _inverted(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    ink = 1 - _brightness(examples[0].flatten(1))
    return ink, ink


EMNIST_CR = Task(
    name="emnist_cr",
    what="recognise 62 handwritten characters, CNN",
    federation=emnist,
    model=CharacterCNN,
    choices={"model.activations": ACTIVATIONS},
    prepare=_characters,
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    eval_sample=10_000,
    paper=PaperSettings(
        rounds=1500,
        clients_per_round=10,
        batch_size=20,
        client_grid=LogRange(-3, 0.5),
        server_grid=LogRange(-3, 1),
        rates={
            "fedadagrad": Rates(-1.5, -1, -2),
            "fedadam": Rates(-1.5, -2.5, -4),
            "fedyogi": Rates(-1.5, -2.5, -4),
            "fedavgm": Rates(-1.5, -0.5),
            "fedavg": Rates(-1, 0),
        },
        results={"fedadagrad": 85.1, "fedadam": 85.6, "fedyogi": 85.5, "fedavgm": 85.2, "fedavg": 84.9},
    ),
)

EMNIST_AE = Task(
    name="emnist_ae",
    what="compress handwritten characters to 30 numbers and back, autoencoder",
    federation=emnist,
    model=Autoencoder,
    choices={"model.activations": ACTIVATIONS},
    prepare=_inverted,
    loss=squared_error,
    metrics={"mse": mse},
    reduction="sum",
    better="lower",
    eval_sample=10_000,
    paper=PaperSettings(
        rounds=3000,
        clients_per_round=10,
        batch_size=20,
        client_grid=LogRange(-1.5, 2),
        server_grid=LogRange(-2, 1),
        rates={
            "fedadagrad": Rates(1.5, -1.5, -3),
            "fedadam": Rates(1, -1.5, -3),
            "fedyogi": Rates(1, -1.5, -3),
            "fedavgm": Rates(0.5, 0),
            "fedavg": Rates(1, 0),
        },
        results={"fedadagrad": 4.20, "fedadam": 1.01, "fedyogi": 0.98, "fedavgm": 1.65, "fedavg": 6.47},
    ),
)
