"""Differences from the sizes of the published datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import publicfiles as files
import pytest

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.importing.published import TFF, differences
from fedopt.data.store import Store


def store_of(name: str, format: str, splits: dict[str, tuple[int, int]], **notes: Any) -> Store:
    """A store that exists only as a manifest."""
    sizes = {
        split: {"clients": clients, "examples": examples} for split, (clients, examples) in splits.items()
    }
    return Store(Path("unused"), {"name": name, "splits": sizes, "notes": {"format": format, **notes}})


def test_cifar_truncated_at_a_record_is_reported(places) -> None:
    """Five of six files have 4 records, one has 3."""
    files.write_cifar(places.source, 10, per_file=4)
    path = places.source / "data_batch_5.bin"
    path.write_bytes(path.read_bytes()[: 3 * 3073])
    options = ImportOptions(train_clients=2, test_clients=2)
    store = import_dataset("cifar10", [places.source], places.to / "s", options).store
    assert differences(store) == [
        "train has 19 examples; published: 50,000",
        "test has 4 examples; published: 10,000",
    ]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_one_missing_record_of_cifar_is_reported(name: str) -> None:
    store = store_of(name, "official binary", {"train": (500, 49_999), "test": (100, 10_000)})
    assert differences(store) == ["train has 49,999 examples; published: 50,000"]


def test_vocabulary_of_5000_words_is_reported(places) -> None:
    files.write_hdf5(places.source, "stackoverflow", files.stackoverflow())
    files.write_counts(places.source)
    lines = "".join(f"w{i} {10_000 - i}\n" for i in range(5_000))
    (places.source / "stackoverflow.word_count").write_text(lines)
    store = import_dataset("stackoverflow", [places.source], places.to / "s").store
    assert "the vocabulary has 5,000 words; published: 10,000" in differences(store)


@pytest.mark.parametrize("name", TFF)
def test_complete_dataset_does_not_differ(name: str) -> None:
    splits = {split: tuple(size) for split, size in TFF[name].items()}
    assert differences(store_of(name, "TFF HDF5", splits, words=10_000, tags=500)) == []


def test_digits_of_emnist_have_their_own_sizes() -> None:
    """3,383 writers with 341,873 and 40,832 images."""
    splits = {"train": (3_383, 341_873), "test": (3_383, 40_832)}
    assert differences(store_of("emnist", "TFF SQLite", splits, options={"digits": True})) == []
    assert len(differences(store_of("emnist", "TFF SQLite", splits, options={"digits": False}))) == 4


@pytest.mark.parametrize(("name", "format"), [("emnist", "LEAF JSON"), ("own", "table")])
def test_data_without_a_published_size_does_not_differ(name: str, format: str) -> None:
    assert differences(store_of(name, format, {"train": (1, 1), "test": (1, 1)})) == []


@pytest.mark.parametrize("notes", [{"options": [1]}, {"words": "abc"}, {"words": [1]}, {"tags": None}])
@pytest.mark.parametrize("name", ["emnist", "stackoverflow"])
def test_notes_of_other_types_are_ignored(name: str, notes: dict[str, Any]) -> None:
    splits = {split: tuple(size) for split, size in TFF[name].items()}
    assert differences(store_of(name, "TFF HDF5", splits, **notes)) == []
