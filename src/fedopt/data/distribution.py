"""Summarize the clients of a split: the distribution of their sizes and of their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopt import rng
from fedopt.data.federation import LabelReader, Split

PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
MAX_BINS = 20
MAX_LABELS = 200  # more different integers are not class labels
SHOWN_CLIENTS = 24  # whose labels are listed
CHEAP_CLIENTS = 200  # whose labels are read
COSTLY_CLIENTS, COSTLY_EXAMPLES = 50, 5000  # the same if labels are read with the examples


def summarize_clients(split: Split) -> dict[str, Any]:
    """Return sizes and labels over clients in a form for JSON.

    Sizes are those of all clients if they are known. Labels are those of a fixed random sample of clients.
    """
    counts = [] if split.labels is None else _count_labels(split.labels, len(split.ids))
    sizes = split.sizes
    if not split.knows_sizes:
        sizes = np.array([sum(by_label.values()) for _, by_label in counts], dtype=np.int64)
    summary: dict[str, Any] = {"clients": len(split.ids)}
    if len(sizes):
        examples = int(sizes.sum()) if split.knows_sizes else None
        summary |= {"examples": examples, "sizes": _summarize_sizes(sizes)}
    labels = sorted({label for _, by_label in counts for label in by_label})
    if split.labels is not None and 0 < len(labels) <= MAX_LABELS:
        summary["labels"] = _summarize_labels(split, counts, labels)
    return summary


Counts = list[tuple[int, dict[int, int]]]  # position of a client, and its number of examples of each label


def _count_labels(labels: LabelReader, clients: int) -> Counts:
    """Return the labels of a sample of clients. The list is empty if they are not class labels."""
    limit = CHEAP_CLIENTS if labels.is_cheap else COSTLY_CLIENTS
    counts: Counts = []
    examples = 0
    for position in rng.generator("client summary").permutation(clients)[:limit].tolist():
        try:
            values = labels.read(position)
        except Exception:  # in the user's data: training reports it, with the client, if it reads the client
            continue
        if values.dtype.kind not in "biu" or values.ndim != 1:
            return []
        names, numbers = np.unique(values, return_counts=True)
        counts.append((position, dict(zip(names.astype(np.int64).tolist(), numbers.tolist(), strict=True))))
        examples += len(values)
        if not labels.is_cheap and examples >= COSTLY_EXAMPLES:
            break
    return sorted(counts, key=lambda entry: entry[0])


def _summarize_sizes(sizes: NDArray[np.int64]) -> dict[str, Any]:
    low, high = int(sizes.min()), int(sizes.max())
    is_long_tailed = high > 10 * max(1.0, float(np.median(sizes)))
    bins = min(MAX_BINS, high - low + 1)
    edges = (
        np.geomspace(max(low, 1), high + 1, bins + 1)
        if is_long_tailed
        else np.linspace(low, high + 1, bins + 1)
    )
    edges = np.unique(np.rint(edges).astype(np.int64))
    edges[0] = low
    numbers, _ = np.histogram(sizes, edges)
    return {
        "clients": len(sizes),
        "percentiles": _percentiles(sizes),
        "edges": edges.tolist(),
        "counts": numbers.tolist(),
    }


def _summarize_labels(split: Split, counts: Counts, labels: list[int]) -> dict[str, Any]:
    assert split.labels is not None
    texts = split.labels.names
    shown = [counts[i] for i in np.linspace(0, len(counts) - 1, min(SHOWN_CLIENTS, len(counts))).astype(int)]
    return {
        "clients": len(counts),
        "names": [texts[label] if 0 <= label < len(texts) else str(label) for label in labels],
        "examples": [sum(by_label.get(label, 0) for _, by_label in counts) for label in labels],
        "per_client": _percentiles(np.array([len(by_label) for _, by_label in counts])),
        "shown": {
            split.ids[position]: [by_label.get(label, 0) for label in labels] for position, by_label in shown
        },
    }


def _percentiles(values: NDArray[np.int64]) -> dict[str, int]:
    numbers = np.percentile(values, PERCENTILES, method="nearest").astype(int).tolist()
    return dict(zip(map(str, PERCENTILES), numbers, strict=True))
