"""Import and training with real files, from the directory FEDOPT_REALDATA or a default directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest

import fedopt
from fedopt.data.importing.importer import import_dataset
from fedopt.data.store import Ragged, Store

# One process of the test session imports each file once.
pytestmark = [pytest.mark.realdata, pytest.mark.xdist_group("real data")]


@pytest.fixture(scope="module")
def real() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    directory = Path(os.environ.get("FEDOPT_REALDATA") or default)
    if not directory.is_dir():
        pytest.skip("no real data: FEDOPT_REALDATA does not name a directory of the public files")
    return directory


@pytest.fixture(scope="module")
def imported(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Store]:
    """`imported(dataset)` returns the store of a dataset; read-only."""

    @cache
    def store(dataset: str) -> Store:
        return import_dataset(dataset, [real], tmp_path_factory.mktemp("real") / dataset).store

    return store


def counts(store: Store) -> dict[str, tuple[int, int]]:
    return {name: (s["clients"], s["examples"]) for name, s in store.manifest["splits"].items()}


def test_import_of_digits_by_writer(real: Path, imported: Callable[[str], Store]) -> None:
    store = imported("emnist")
    assert counts(store) == {"train": (539, 60_000), "test": (297, 10_000)}
    train = store.split("train")
    with h5py.File(real / "fed_emnist_digitsonly_train.h5") as file:
        for at in (0, 7, 538):
            group = file["examples"][train.ids[at]]
            columns = train.columns(at)
            pixels = np.asarray(columns["pixels"])
            assert pixels.dtype == np.uint8
            assert np.abs(pixels / 255 - group["pixels"][()]).max() < 1e-6
            assert np.array_equal(columns["label"], group["label"][()])


def test_import_of_speeches_by_role(real: Path, imported: Callable[[str], Store]) -> None:
    store = imported("shakespeare")
    assert counts(store) == {"train": (1_119, 26_560), "test": (1_119, 4_134)}
    train = store.split("train")
    with h5py.File(real / "shakespeare_train.h5") as file:
        for at in (0, 500, 1_118):
            snippets = train.columns(at)["snippets"]
            assert isinstance(snippets, Ragged)
            raw = file["examples"][train.ids[at]]["snippets"][()].tolist()
            assert [row.tobytes() for row in snippets.rows()] == raw


def test_import_of_questions_by_user(real: Path, imported: Callable[[str], Store]) -> None:
    store = imported("stackoverflow")
    sizes = counts(store)
    assert sizes["train"] == (2_531, 20_815) and sizes["test"][1] == 1_924
    words, tags = store.text("vocabulary.txt").splitlines(), store.text("tags.txt").splitlines()
    assert len(words) == 10_000 and len(tags) == 500 and tags[:2] == ["c#", ".net"]
    known_words = frozenset(words)
    train = store.split("train")
    with h5py.File(real / "stackoverflow_train.h5") as file:
        for at in (0, 1_000, 2_530):
            group, columns = file["examples"][train.ids[at]], train.columns(at)
            for field in ("tokens", "title"):
                column = columns[field]
                assert isinstance(column, Ragged)
                for ids, text in zip(column.rows(), group[field][()].tolist(), strict=True):
                    expected = text.decode().split()
                    decoded = [words[i - 1] if i <= 10_000 else None for i in ids.tolist()]
                    assert len(expected) == len(decoded)
                    for word, known in zip(expected, decoded, strict=True):
                        assert known == (word if word in known_words else None)
            column = columns["tags"]
            assert isinstance(column, Ragged)
            for ids, text in zip(column.rows(), group["tags"][()].tolist(), strict=True):
                assert [tags[i] for i in ids] == [tag for tag in text.decode().split("|") if tag in tags]


@pytest.mark.parametrize(
    ("task", "dataset"),
    [
        ("emnist_cr", "emnist"),
        ("emnist_ae", "emnist"),
        ("shakespeare", "shakespeare"),
        ("so_nwp", "stackoverflow"),
        ("so_lr", "stackoverflow"),
    ],
)
def test_task_trains_on_real_files(task: str, dataset: str, imported: Callable[[str], Store]) -> None:
    """Three small rounds lower the test loss."""
    small = {"client.steps": 3, "eval.sample": 100, "eval.every": 3, "clients_per_round": 3}
    result = fedopt.run(task, rounds=3, data=str(imported(dataset).directory), config=small)
    before, after = result.test[0]["loss"], result.test[-1]["loss"]
    assert after < before
