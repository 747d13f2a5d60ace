"""Statistics of a store: client sizes and labels per client."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopt.data.store.columns import Ragged
from fedopt.data.store.stored import Store, StoredSplit

PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
MAX_BARS = 20


def describe(store: Store) -> dict[str, Any]:
    """Return the manifest, percentiles of client sizes and, for labels, a histogram of labels per client."""
    splits = {}
    for name, summary in store.manifest["splits"].items():
        split = store.split(name)
        sizes = np.percentile(split.sizes, PERCENTILES, method="nearest").astype(int).tolist()
        splits[name] = {**summary, "sizes": dict(zip(map(str, PERCENTILES), sizes, strict=True))}
        if (counts := labels_per_client(split)) is not None:
            numbers, clients = np.unique(counts, return_counts=True)
            splits[name]["labels_per_client"] = {
                str(n): int(c) for n, c in zip(numbers, clients, strict=True)
            }
    return {**store.manifest, "directory": str(store.directory), "splits": splits}


def labels_per_client(split: StoredSplit) -> NDArray[np.int64] | None:
    """Return the number of different labels of each client, (clients,), or None without integer labels."""
    if "label" not in split.summary["columns"]:
        return None
    labels = split.column("label")
    if isinstance(labels, Ragged) or labels.dtype.kind not in "iu" or labels.ndim != 1:
        return None
    owners = np.repeat(np.arange(len(split.sizes)), split.sizes)
    order = np.lexsort((labels, owners))
    owners, sorted_labels = owners[order], labels[order]
    first = np.ones(len(owners), dtype=bool)
    first[1:] = (owners[1:] != owners[:-1]) | (sorted_labels[1:] != sorted_labels[:-1])
    return np.bincount(owners[first], minlength=len(split.sizes))


def histogram(counts: dict[str, int], width: int = 40) -> list[str]:
    """Draw a bar per number of labels, or per range if there are many numbers.

    >>> print(*histogram({"1": 2, "3": 4}, width=4), sep="\\n")
     1 | ##    2
     2 |       0
     3 | ####  4
    """
    numbers = [int(n) for n in counts]
    step = -(-(max(numbers) - min(numbers) + 1) // MAX_BARS)
    start = min(numbers) if step == 1 else min(numbers) // step * step
    rows = []
    for low in range(start, max(numbers) + 1, step):
        total = sum(counts.get(str(n), 0) for n in range(low, low + step))
        rows.append((f"{low}" if step == 1 else f"{low}-{low + step - 1}", total))
    most = max(total for _, total in rows)
    margin = max(len(label) for label, _ in rows)
    return [
        f"{label:>{margin + 1}} | {'#' * round(width * total / most):<{width}}  {total:,}"
        for label, total in rows
    ]
