"""CIFAR-10 and CIFAR-100: images of 32 x 32 pixels, cropped to 24 x 24, on 500 clients."""

from __future__ import annotations

from functools import partial
from math import sqrt

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.data import Arrays, Federation
from fedopt.data.store.columns import Columns
from fedopt.data.synthetic import cifar as synthetic_cifar
from fedopt.models.resnet import ResNet18
from fedopt.tasks.base import LogRange, PaperSettings, Rates, Task
from fedopt.tasks.batch import Batch
from fedopt.tasks.metrics import accuracy, cross_entropy
from fedopt.tasks.task_data import ColumnSplit, encode_federation, flat_column, open_splits

SIDE, CROP = 32, 24
AUGMENTATIONS = ("per_image", "per_batch")


def _synthetic_split(classes: int, split: str) -> ColumnSplit:
    columns = partial(synthetic_cifar.examples, split, classes=classes)
    labels = partial(synthetic_cifar.labels, split, classes=classes)
    return ColumnSplit(synthetic_cifar.ids(split), synthetic_cifar.sizes(split), columns, labels=labels)


def _encode(columns: Columns) -> Arrays:
    return flat_column(columns, "image"), flat_column(columns, "label").astype(np.int64)


def cifar10(source: str, *, clients: int = 0) -> Federation:
    """Open CIFAR-10. Each client has a Dirichlet mix of the 10 classes."""
    train, test = open_splits(source, "cifar10", partial(_synthetic_split, 10), clients)
    return encode_federation(source, train, test, _encode)


def cifar100(source: str, *, clients: int = 0) -> Federation:
    """Open CIFAR-100. Each client has a Pachinko mix of the 100 classes."""
    train, test = open_splits(source, "cifar100", partial(_synthetic_split, 100), clients)
    return encode_federation(source, train, test, _encode)


def standardised_crops(
    examples: tuple[Tensor, ...], rng: np.random.Generator | None, *, augment: str = AUGMENTATIONS[0]
) -> Batch:
    """Crop and standardise images: random crops and flips in training, the centre in evaluation.

    With `augment="per_image"` each image has its own crop. With "per_batch" all images of a batch share one,
    as in the authors' code of 2020-09. Each image has its own flip in both cases.
    """
    images, labels = examples  # (B, 32, 32, 3)
    n, margin = len(images), SIDE - CROP
    if rng is None:
        corners, flipped = np.full((1, 2), margin // 2), np.zeros((1, 1), dtype=bool)
    else:
        corners = rng.integers(margin + 1, size=(n if augment == "per_image" else 1, 2))
        flipped = rng.random((n, 1)) < 0.5
    steps = np.arange(CROP)
    rows = torch.from_numpy(corners[:, :1] + steps)
    columns = torch.from_numpy(corners[:, 1:] + np.where(flipped, steps[::-1], steps))
    crops = images[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]
    pixels = crops.permute(0, 3, 1, 2).float().contiguous()  # (B, 3, 24, 24)
    flat = pixels.view(n, -1)
    flat -= flat.mean(1, keepdim=True)
    flat /= flat.square().mean(1, keepdim=True).sqrt().clamp(min=1 / sqrt(flat.shape[1]))
    return pixels, labels


def _penalty(model: nn.Module) -> Tensor:
    assert isinstance(model, ResNet18)
    return model.penalty()


CIFAR10 = Task(
    name="cifar10",
    what="recognise 10 kinds of things in colour images, ResNet-18",
    federation=cifar10,
    model=partial(ResNet18, classes=10),
    choices={"data.augment": AUGMENTATIONS},
    prepare=standardised_crops,
    loss=cross_entropy,
    penalty=_penalty,
    metrics={"accuracy": accuracy},
    settings=PaperSettings(
        rounds=4000,
        clients_per_round=10,
        batch_size=20,
        client_grid=LogRange(-3, 0.5),
        server_grid=LogRange(-3, 1),
        rates={
            "fedadagrad": Rates(-1.5, -1, -2),
            "fedadam": Rates(-1.5, -2, -3),
            "fedyogi": Rates(-1.5, -2, -3),
            "fedavgm": Rates(-1.5, -0.5),
            "fedavg": Rates(-0.5, 0),
        },
        results={"fedadagrad": 72.1, "fedadam": 77.4, "fedyogi": 78.0, "fedavgm": 77.4, "fedavg": 72.8},
    ),
)

CIFAR100 = Task(
    name="cifar100",
    what="recognise 100 kinds of things in colour images, ResNet-18",
    federation=cifar100,
    model=ResNet18,
    choices={"data.augment": AUGMENTATIONS},
    prepare=standardised_crops,
    loss=cross_entropy,
    penalty=_penalty,
    metrics={"accuracy": accuracy},
    settings=PaperSettings(
        rounds=4000,
        clients_per_round=10,
        batch_size=20,
        client_grid=LogRange(-3, 0.5),
        server_grid=LogRange(-3, 1),
        rates={
            "fedadagrad": Rates(-1, -1, -2),
            "fedadam": Rates(-1.5, 0, -1),
            "fedyogi": Rates(-1.5, 0, -1),
            "fedavgm": Rates(-1.5, 0),
            "fedavg": Rates(-1, 0.5),
        },
        results={"fedadagrad": 47.9, "fedadam": 52.5, "fedyogi": 52.4, "fedavgm": 52.4, "fedavg": 44.7},
    ),
)
