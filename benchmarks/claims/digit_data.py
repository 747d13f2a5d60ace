"""The imported digits as arrays, for the tasks of the claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedopt.errors import DataError

STORE = Path("data/digits")  # relative to the working directory of the claims
Digits = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]  # images and labels


def _load(split: str, name: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(STORE / split / f"{name}.npy")
        return array
    except FileNotFoundError as error:
        raise DataError(
            f"no imported digits at {STORE.absolute()}; run this in the working directory of the claims, "
            f"after `fedopt data import emnist PATH --to {STORE}`"
        ) from error


def load_digits(split: str) -> Digits:
    """Return the images and labels of the "train" or "test" split. Ink is 1 and paper is 0."""
    pixels, labels = _load(split, "pixels"), _load(split, "label")
    return np.float32(1) - pixels.astype(np.float32) / np.float32(255), labels


def load_writers() -> list[npt.NDArray[np.int64]]:
    """Return the positions of the training digits of each writer."""
    offsets = _load("train", "offsets")
    return [np.arange(first, last) for first, last in zip(offsets[:-1], offsets[1:], strict=True)]
