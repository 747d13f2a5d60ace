"""A small classification problem and a model with a frozen random layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

FEATURES, HIDDEN, CLASSES = 6, 32, 3


def examples(seed: int, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n)
    points = rng.normal(size=(n, FEATURES)) * 0.5 + 2 * np.eye(CLASSES, FEATURES)[labels]
    return points.astype(np.float32), labels


CLIENTS = {f"client{i}": examples(i) for i in range(6)}
TEST = examples(100, 200)
CONFIG = {"clients_per_round": 3, "client.lr": 0.3, "eval.every": 1}


class FrozenLayer(nn.Module):
    """A random first layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN).requires_grad_(False)
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))
