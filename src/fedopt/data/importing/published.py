"""The published sizes of the public datasets, to notice incomplete files."""

from __future__ import annotations

from typing import NamedTuple

from fedopt.data.store import Store
from fedopt.data.text import TAGS, WORDS


class Size(NamedTuple):
    """The number of clients and examples of a split."""

    clients: int
    examples: int


# From the documentation of TensorFlow Federated.
EMNIST_DIGITS = {"train": Size(3_383, 341_873), "test": Size(3_383, 40_832)}
TFF: dict[str, dict[str, Size]] = {
    "emnist": {"train": Size(3_400, 671_585), "test": Size(3_400, 77_483)},
    "cifar100": {"train": Size(500, 50_000), "test": Size(100, 10_000)},
    "shakespeare": {"train": Size(715, 16_068), "test": Size(715, 2_356)},
    "stackoverflow": {
        "train": Size(342_477, 135_818_730),
        "heldout": Size(38_758, 16_491_230),
        "test": Size(204_088, 16_586_035),
    },
}
# The official CIFAR files have no clients; the import partitions them.
CIFAR_EXAMPLES = {"train": 50_000, "test": 10_000}


def differences(store: Store) -> list[str]:
    """Return how the sizes of a store differ from those of the published dataset, one sentence each."""
    notes = store.manifest["notes"]
    found = []
    if notes.get("format") == "official binary":
        expected = {split: {"examples": count} for split, count in CIFAR_EXAMPLES.items()}
    elif str(notes.get("format", "")).startswith("TFF"):  # LEAF has many versions
        is_digits = store.name == "emnist" and notes.get("options") == {"digits": True}
        sizes = EMNIST_DIGITS if is_digits else TFF.get(store.name, {})
        expected = {split: size._asdict() for split, size in sizes.items()}
    else:
        expected = {}
    for split, counts in store.manifest["splits"].items():
        for what, count in expected.get(split, {}).items():
            if counts[what] != count:
                found.append(f"{split} has {counts[what]:,} {what}; published: {count:,}")
    if store.name == "stackoverflow":
        for what, count in (("words", WORDS.size), ("tags", TAGS)):
            number = notes.get(what)
            if isinstance(number, int) and number != count:
                found.append(f"the vocabulary has {number:,} {what}; published: {count:,}")
    return found
