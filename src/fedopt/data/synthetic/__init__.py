"""Synthetic datasets. They need no download and match the real data in clients, sizes and label skew.

Each dataset module has `sizes(split)`, `ids(split)` and `examples(split, client)`. Examples are columns with
the names of an imported dataset.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def synthetic_sizes(dataset: str, split: str) -> NDArray[np.int64]:
    """Return the number of examples of each client of a synthetic dataset.

    Args:
        dataset: cifar10, cifar100, emnist, shakespeare or stackoverflow.
        split: train or test.

    Returns:
        int64 (clients,).

    Examples:
        >>> int(synthetic_sizes("cifar100", "train").sum())
        50000
    """
    from fedopt.data.synthetic import cifar, emnist, shakespeare, stackoverflow

    sizes: dict[str, Callable[[str], NDArray[np.int64]]] = {
        "cifar10": cifar.sizes,
        "cifar100": cifar.sizes,
        "emnist": emnist.sizes,
        "shakespeare": shakespeare.sizes,
        "stackoverflow": stackoverflow.sizes,
    }
    return sizes[dataset](split)
