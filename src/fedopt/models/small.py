"""Small networks on vectors of 60 numbers with 10 classes, for the tasks on synthetic(alpha, beta)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedopt.models.keras import dense


class LogisticRegression(nn.Module):
    """Multinomial logistic regression 60-10, 610 parameters; the softmax is part of the loss."""

    each_layer_once = True

    def __init__(self) -> None:
        super().__init__()
        self.dense = dense(60, 10)

    def forward(self, x: Tensor) -> Tensor:  # (B, 60) -> (B, 10)
        logits: Tensor = self.dense(x)
        return logits


class Perceptron(nn.Module):
    """Multilayer perceptron 60-32-10 with ReLU, 2,282 parameters."""

    each_layer_once = True

    def __init__(self, *, hidden: int = 32) -> None:
        super().__init__()
        self.dense1 = dense(60, hidden)
        self.dense2 = dense(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:  # (B, 60) -> (B, 10)
        logits: Tensor = self.dense2(torch.relu(self.dense1(x)))
        return logits
