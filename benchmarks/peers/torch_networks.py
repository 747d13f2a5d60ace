"""The networks in plain PyTorch, as a user of a PyTorch simulator would write them.

Parameters have the names and shapes of fedopt's networks, so that the initial weights can be copied.
"""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dense1 = nn.Linear(9216, 128)
        self.dropout2 = nn.Dropout(0.5)
        self.dense2 = nn.Linear(128, 62)

    def forward(self, pixels: Tensor) -> Tensor:
        h = F.relu(self.conv1(pixels.unsqueeze(1)))
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        h = F.relu(self.dense1(self.dropout1(h).flatten(1)))
        return self.dense2(self.dropout2(h))


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
        layers: list[nn.Module] = []
        for a, b in zip(widths, widths[1:], strict=False):
            layers.append(nn.Linear(a, b))
            if b != 30:
                layers.append(nn.Sigmoid())
        self.layers = nn.Sequential(*layers)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.layers(pixels)


def norm_relu(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.GroupNorm(2, channels, 1e-3), nn.ReLU(inplace=True))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, first: bool) -> None:
        super().__init__()
        self.before = nn.Identity() if first else norm_relu(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.between = norm_relu(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, bias=False), nn.GroupNorm(2, outputs, 1e-3)
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.conv2(self.between(self.conv1(self.before(x))))


class ResNet18(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, stride=2, bias=False)
        self.first = norm_relu(64)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        blocks: list[nn.Module] = []
        inputs = 64
        for width in (64, 128, 256, 512):
            for _ in range(2):
                blocks.append(Block(inputs, width, first=not blocks))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.last = norm_relu(512)
        self.dense = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        h = self.first(self.conv(F.pad(images, (2, 3, 2, 3))))
        h = self.last(self.blocks(self.pool(h)))
        return self.dense(h.mean((2, 3)))


class LSTM(nn.Module):
    """PyTorch's fused LSTM with one bias vector, as in Keras."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(4 * units, inputs))
        self.recurrent = nn.Parameter(torch.zeros(4 * units, units))
        self.bias = nn.Parameter(torch.zeros(4 * units))

    def forward(self, x: Tensor) -> Tensor:
        start = x.new_zeros(1, len(x), self.recurrent.shape[1])
        weights = [self.kernel, self.recurrent, self.bias, torch.zeros_like(self.bias)]
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]


def repeat_last(outputs: Tensor, tokens: Tensor) -> Tensor:
    """Repeat the last output at padded positions, as Keras does."""
    last = ((tokens != 0).sum(1, keepdim=True) - 1).clamp(min=0)
    seen = torch.minimum(torch.arange(tokens.shape[1]), last)
    return outputs.gather(1, seen.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))


class NextCharacter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(90, 8)
        self.lstm1 = LSTM(8, 256)
        self.lstm2 = LSTM(256, 256)
        self.dense = nn.Linear(256, 90)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.lstm2(self.lstm1(self.embedding(tokens)))
        return self.dense(repeat_last(h, tokens))


class NextWord(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10_004, 96)
        self.lstm = LSTM(96, 670)
        self.projection = nn.Linear(670, 96)
        self.dense = nn.Linear(96, 10_004)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.projection(self.lstm(self.embedding(tokens)))
        return self.dense(repeat_last(h, tokens))


class TagRegression(nn.Module):
    """Bags of words as sums of kernel rows. This is faster than dense bags (see benchmarks/README.md)."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(10_000, 500))
        self.bias = nn.Parameter(torch.zeros(500))

    def forward(self, words: Tensor) -> Tensor:
        known = (words > 0) & (words <= 10_000)
        counts = known.sum(1)
        sums = F.embedding_bag(words[known] - 1, self.kernel, counts.cumsum(0) - counts, mode="sum")
        return sums / (words > 0).sum(1, keepdim=True).clamp(min=1) + self.bias


class DenseTagRegression(TagRegression):
    """Bags of words as dense vectors of 10,000 numbers, as in the authors' code."""

    def forward(self, words: Tensor) -> Tensor:
        bags = torch.zeros(len(words), 10_002).scatter_add_(
            1, words.clamp(max=10_001), torch.ones(words.shape)
        )
        bags /= (words > 0).sum(1, keepdim=True).clamp(min=1)
        return bags[:, 1:10_001] @ self.kernel + self.bias


class LogisticRegression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(60, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense1 = nn.Linear(60, 32)
        self.dense2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense2(F.relu(self.dense1(x)))


NETWORKS = {
    "cifar10": lambda: ResNet18(10),
    "cifar100": lambda: ResNet18(100),
    "emnist_cr": CNN,
    "emnist_ae": Autoencoder,
    "shakespeare": NextCharacter,
    "so_nwp": NextWord,
    "so_lr": DenseTagRegression if os.environ.get("FEDOPT_BAGS") == "columns" else TagRegression,
    "synthetic_lr": LogisticRegression,
    "synthetic_mlp": Perceptron,
}


def compute_loss(task: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of a batch as in fedopt: the sum over the examples for two tasks, else the mean."""
    if task == "emnist_ae":
        return (outputs - targets).square().mean(1).sum()
    if task == "so_lr":
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1).sum()
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def build_network(task: str, parameters: dict) -> nn.Module:
    """Build the task's network with the given weights."""
    module = NETWORKS[task]()
    names = dict(module.named_parameters())
    assert set(names) == set(parameters), set(names) ^ set(parameters)
    assert sum(p.numel() for p in names.values()) == sum(v.size for v in parameters.values())
    with torch.no_grad():
        for name, p in names.items():
            p.copy_(torch.from_numpy(parameters[name]))
    return module
