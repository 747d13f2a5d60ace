"""The imported digits as arrays, for the tasks of the claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

STORE = Path("data/digits")  # relative to the working directory of the claims
Digits = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]  # images and labels


def load_digits(split: str) -> Digits:
    """Return the images and labels of the "train" or "test" split. Ink is 1 and paper is 0."""
    pixels, labels = np.load(STORE / split / "pixels.npy"), np.load(STORE / split / "label.npy")
    return 1 - pixels.astype(np.float32) / 255, labels


def load_writers() -> list[npt.NDArray[np.int64]]:
    """Return the positions of the training digits of each writer."""
    offsets = np.load(STORE / "train" / "offsets.npy")
    return [np.arange(first, last) for first, last in zip(offsets[:-1], offsets[1:], strict=True)]
