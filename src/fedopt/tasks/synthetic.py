"""Two small models on synthetic(alpha, beta) of Li et al., which is also a dataset of LEAF.

The tasks are not in the paper. Clients per round, batch size and rounds are those of Li et al. The best rates
are from our own sweeps with 60 rounds and one seed: of the points whose mean accuracy is within two
percentage points of the highest, the one with the highest last accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from torch import Tensor

from fedopt.data import Arrays, Federation
from fedopt.data.store.columns import Columns
from fedopt.data.synthetic import softmax
from fedopt.errors import ConfigError, DataError
from fedopt.models.small import LogisticRegression, Perceptron
from fedopt.tasks.base import LogRange, Rates, Task, TaskSettings
from fedopt.tasks.batch import Batch
from fedopt.tasks.metrics import accuracy, cross_entropy
from fedopt.tasks.task_data import ColumnSplit, encode_federation, flat_column


def synthetic(source: str, *, clients: int = 30, alpha: float = 1.0, beta: float = 1.0) -> Federation:
    """Generate synthetic(alpha, beta) with this number of clients."""
    if source != "synthetic":
        raise DataError(
            f"the task generates its data and cannot read {source}; leave out --data, or define a task of "
            "your own on imported data",
            path=source,
        )
    if clients < 1:
        raise ConfigError(f"data.clients must be 1 or more, got {clients}", keys=["data.clients"])
    train, test = (_generated_split(split, clients, alpha, beta) for split in ("train", "test"))
    return encode_federation(source, train, test, _encode)


def _generated_split(split: str, clients: int, alpha: float, beta: float) -> ColumnSplit:
    columns = partial(softmax.examples, split, clients=clients, alpha=alpha, beta=beta)
    labels = partial(_labels, split, clients, alpha, beta)
    return ColumnSplit(softmax.ids(clients), softmax.sizes(split, clients), columns, labels=labels)


def _labels(split: str, clients: int, alpha: float, beta: float, client: int) -> np.ndarray:
    return softmax.examples(split, client, clients, alpha, beta)["label"]


def _encode(columns: Columns) -> Arrays:
    return flat_column(columns, "features"), flat_column(columns, "label")


def _unchanged(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    inputs, labels = examples
    return inputs, labels


def _settings(rates: Mapping[str, Rates]) -> TaskSettings:
    return TaskSettings(
        rounds=200,
        clients_per_round=10,
        batch_size=10,
        client_grid=LogRange(-3, 0),
        server_grid=LogRange(-2, 0.5),
        rates=rates,
    )


SYNTHETIC_LR = Task(
    name="synthetic_lr",
    what="classify generated vectors of 60 numbers into 10 classes, logistic regression",
    federation=synthetic,
    model=LogisticRegression,
    prepare=_unchanged,
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    settings=_settings(
        {
            "fedadagrad": Rates(-2, -1, -3),
            "fedadam": Rates(-1.5, -1.5, -3),
            "fedyogi": Rates(-1.5, -1.5, -3),
            "fedavgm": Rates(-2, 0),
            "fedavg": Rates(-1.5, 0),
        }
    ),
)

SYNTHETIC_MLP = Task(
    name="synthetic_mlp",
    what="classify generated vectors of 60 numbers into 10 classes, perceptron with 32 hidden units",
    federation=synthetic,
    model=Perceptron,
    prepare=_unchanged,
    loss=cross_entropy,
    metrics={"accuracy": accuracy},
    settings=_settings(
        {
            "fedadagrad": Rates(-1, -1, -3),
            "fedadam": Rates(-1, -1.5, -3),
            "fedyogi": Rates(-1, -1.5, -3),
            "fedavgm": Rates(-1, -0.5),
            "fedavg": Rates(-1, 0),
        }
    ),
)
