"""Results of simple methods: constant predictions, and principal components for the autoencoder.

`python -m claims baselines` computes them from the imported data and stores them.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from fedopt.data import Split
from fedopt.files import write_atomically
from fedopt.models.emnist import Autoencoder
from fedopt.tasks import TASKS
from fedopt.tasks.text_metrics import recall_at_5

FILE = Path(__file__).parent / "baselines.json"
CODE_UNITS = min(Autoencoder.WIDTHS)


def load_baselines() -> dict[str, float]:
    """Return the stored results by the name of the data."""
    stored: dict[str, float] = json.loads(FILE.read_text())
    return stored


def store_baselines(work: Path) -> Path:
    """Compute the results and write them to the file."""
    stores = work / "data"
    images = _images(stores / "digits")
    found = {
        "tags": _frequent_tags(stores / "so"),
        "digits": _frequent_digit(stores / "digits"),
        "images": _mean_image(*images),
        "components": _principal_components(*images, CODE_UNITS),
    }
    write_atomically(FILE, json.dumps({name: round(value, 5) for name, value in found.items()}) + "\n")
    return FILE


def _frequent_tags(store: Path) -> float:
    """Return recall at 5 on the test set if the five most frequent tags of the training set are predicted."""
    federation = TASKS["so_lr"].federation(str(store))
    clients = range(len(federation.train.ids))
    counts = torch.stack([_targets("so_lr", federation.train, client).sum(0) for client in clients]).sum(0)
    found = total = 0.0
    for client in range(len(federation.test.ids)):
        targets = _targets("so_lr", federation.test, client)
        hits, present = recall_at_5(counts.expand_as(targets).float(), targets)
        found, total = found + float(hits.sum()), total + float(present.sum())
    return found / total


def _targets(task: str, split: Split, client: int) -> Tensor:
    examples = tuple(torch.tensor(array) for array in split.client(client))
    targets = TASKS[task].prepare(examples, None)[1]
    assert isinstance(targets, Tensor)
    return targets


def _frequent_digit(store: Path) -> float:
    """Return the share of the test digits that have the most frequent label of the training set."""
    federation = TASKS["emnist_cr"].federation(str(store))
    counts = [
        torch.stack([_digit_counts(split, client) for client in range(len(split.ids))]).sum(0)
        for split in (federation.train, federation.test)
    ]
    return float(counts[1][counts[0].argmax()] / counts[1].sum())


def _mean_image(train: Tensor, test: Tensor) -> float:
    """Return the mean squared error per pixel if every test digit is replaced by the mean training digit."""
    return float((test - train.mean(0)).square().mean())


def _principal_components(train: Tensor, test: Tensor, count: int) -> float:
    """Return the mean squared error per pixel of the test digits from their first principal components."""
    directions = torch.linalg.eigh(torch.cov(train.T)).eigenvectors[:, -count:]  # eigenvalues ascend
    centred = test - train.mean(0)
    return float((centred - centred @ directions @ directions.T).square().mean())


def _images(store: Path) -> tuple[Tensor, Tensor]:
    """Return the training and test digits as the autoencoder sees them."""
    federation = TASKS["emnist_ae"].federation(str(store))
    train, test = (
        torch.cat([_targets("emnist_ae", split, client) for client in range(len(split.ids))]).double()
        for split in (federation.train, federation.test)
    )
    return train, test


def _digit_counts(split: Split, client: int) -> Tensor:
    return torch.bincount(torch.as_tensor(split.client(client)[1]), minlength=10)
