"""EMNIST: character recognition and an autoencoder, on 3,400 writers.

As in the public files, the background is 1 and ink is 0. The autoencoder uses inverted pixels, as in the
authors' code.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedopt.data import Arrays, Federation
from fedopt.data.store.columns import Columns
from fedopt.data.synthetic import emnist as synthetic_emnist
from fedopt.models.emnist import ACTIVATIONS, Autoencoder, CharacterCNN
from fedopt.tasks.base import LogRange, PaperSettings, Rates, Task
from fedopt.tasks.batch import Batch
from fedopt.tasks.metrics import accuracy, cross_entropy, mse, squared_error
from fedopt.tasks.task_data import ColumnSplit, encode_federation, flat_column, open_splits


def _synthetic_split(split: str) -> ColumnSplit:
    columns = partial(synthetic_emnist.examples, split)
    labels = partial(synthetic_emnist.labels, split)
    return ColumnSplit(synthetic_emnist.ids(split), synthetic_emnist.sizes(split), columns, labels=labels)


def _encode(columns: Columns) -> Arrays:
    return flat_column(columns, "pixels"), flat_column(columns, "label").astype(np.int64)


def emnist(source: str, *, clients: int = 0) -> Federation:
    """Open EMNIST by writer, with the first `clients` writers (0: all)."""
    train, test = open_splits(source, "emnist", _synthetic_split, clients)
    return encode_federation(source, train, test, _encode)


def _to_unit_range(pixels: Tensor) -> Tensor:
    """Convert pixels to floats from 0 to 1. Stores have uint8, or floats for files with more levels."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def _characters(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    pixels, labels = examples
    return _to_unit_range(pixels), labels


def _inverted(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    ink = 1 - _to_unit_range(examples[0].flatten(1))
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
    settings=PaperSettings(
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
    settings=PaperSettings(
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
