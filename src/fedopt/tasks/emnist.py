"""EMNIST: character recognition and the autoencoder, on 3,400 writers.

Pixels are 1 on the background and 0 on ink, as in the public files; the autoencoder sees them inverted,
as the authors' code does.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor

from fedopt.data import Arrays, Federation, generated, synthetic_emnist
from fedopt.errors import UserError
from fedopt.models.emnist import ACTIVATIONS, Autoencoder, CharacterCNN
from fedopt.tasks.base import Batch, Grid, PaperSettings, Rates, Task
from fedopt.tasks.metrics import accuracy, cross_entropy, mse, squared_error


def _writer(split: str, index: int) -> Arrays:
    return synthetic_emnist.examples(split, index)


def emnist(source: str, *, clients: int = synthetic_emnist.N_WRITERS) -> Federation:
    """EMNIST-62 by writer: the first `clients` writers of the generator."""
    if source != "synthetic":
        raise UserError(f"data {source!r} cannot be read; allowed: synthetic")
    if not 1 <= clients <= synthetic_emnist.N_WRITERS:
        raise UserError(f"data.clients must be 1 to {synthetic_emnist.N_WRITERS}, got {clients}")
    ids = synthetic_emnist.ids()[:clients]
    train, test = (
        generated(ids, synthetic_emnist.sizes(split)[:clients], partial(_writer, split))
        for split in ("train", "test")
    )
    return Federation(train, test, "synthetic")


def _characters(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    pixels, labels = examples
    return pixels.float() / 255, labels


def _inverted(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    ink = (255 - examples[0].flatten(1).float()) / 255
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
        client_grid=Grid(-3, 0.5),
        server_grid=Grid(-3, 1),
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
        client_grid=Grid(-1.5, 2),
        server_grid=Grid(-2, 1),
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
