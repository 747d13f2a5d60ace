"""Token sequences with masks as nested client data, in all accepted forms; importable by worker processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from fedopt.rng import generator

WORDS, LENGTH, CLASSES = 12, 5, 3
IDS = ["a", "b", "c"]


def tokens(client: str, n: int = 8) -> dict[str, np.ndarray]:
    rng = generator("tests", "nested", client)
    ids = rng.integers(0, WORDS, (n, LENGTH))
    mask = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, n)[:, None]
    return {"input_ids": ids, "attention_mask": mask, "labels": ids[:, 0] % CLASSES}


class MeanEmbedding(nn.Module):
    """Classifies the mean embedding of the tokens that the mask selects."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 4)
        self.out = nn.Linear(4, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        weights = attention_mask.float().unsqueeze(-1)
        return self.out((self.embedding(input_ids) * weights).sum(1) / weights.sum(1))


class Items(Dataset):
    """A map-style dataset of the rows of nested arrays. `form` makes an item of a row."""

    def __init__(self, arrays: dict[str, np.ndarray], form: str = "dict") -> None:
        self.arrays, self.form = arrays, form

    def __len__(self) -> int:
        return len(self.arrays["labels"])

    def __getitem__(self, index: int) -> Any:
        row = {name: torch.tensor(values[index]) for name, values in self.arrays.items()}
        if self.form == "dict":
            return row
        return (row["input_ids"], row["attention_mask"]), row["labels"]


def first_tokens(items: list[Any]) -> dict[str, Tensor]:
    """A collate function: torch's default, cut to three tokens."""
    batch = torch.utils.data.default_collate(items)
    return {name: value[:, :3] if value.ndim == 2 else value for name, value in batch.items()}
