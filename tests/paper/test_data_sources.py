"""Where the data of each dataset is found, and how numbers from other data are labelled."""

from __future__ import annotations

from pathlib import Path

import pytest
from reproduction_runs import write_images

from fedopt.errors import DataError
from fedopt_paper import data_sources
from fedopt_paper.data_sources import find_data_sources, label_suffix
from fedopt_paper.published import DatasetSizes

TASKS = ["emnist_cr", "so_lr"]


def test_data_is_one_store_or_a_directory_of_stores(tmp_path: Path) -> None:
    digits = write_images(tmp_path / "emnist", "emnist", [[0, 9], [3]])
    letters = write_images(tmp_path / "letters", "emnist", [[0, 61], [3]])
    for data, label in ((tmp_path, "digits"), (digits, "digits"), (letters, "other sample")):
        sources = find_data_sources(TASKS, str(data))
        assert (sources["emnist"].label, sources["stackoverflow"].label) == (label, "synthetic")
    assert find_data_sources(TASKS, "synthetic")["emnist"].directory == "synthetic"


@pytest.mark.parametrize("name", ["letters", "missing"])
def test_data_without_a_needed_dataset_is_an_error(tmp_path: Path, name: str) -> None:
    write_images(tmp_path / "letters", "emnist", [[0, 61], [3]])
    with pytest.raises(DataError) as caught:
        find_data_sources(["so_lr"], str(tmp_path / name))
    assert caught.value.path == tmp_path / name


def test_store_of_another_dataset_is_an_error(tmp_path: Path) -> None:
    write_images(tmp_path / "emnist", "cifar10", [[1]])
    with pytest.raises(DataError) as caught:
        find_data_sources(TASKS, str(tmp_path))
    assert caught.value.path == tmp_path / "emnist"


def test_imported_data_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path))
    write_images(tmp_path / "stores" / "emnist", "emnist", [[0, 9], [3]])
    sources = find_data_sources(["emnist_cr", "cifar10"], None)
    assert (sources["emnist"].label, sources["cifar10"].label) == ("digits", "synthetic")


@pytest.mark.parametrize(("form", "label"), [("official binary", "other sample"), ("TFF HDF5", "")])
def test_images_partitioned_by_the_import_are_another_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, label: str
) -> None:
    monkeypatch.setitem(data_sources.DATASETS, "cifar100", DatasetSizes(1, 2, 1, 2))  # type: ignore[arg-type]
    notes = {"format": form, "options": {"partition": "pachinko", "seed": 3}}
    write_images(tmp_path / "cifar100", "cifar100", [[1, 2]], notes)
    assert find_data_sources(["cifar100"], str(tmp_path))["cifar100"].label == label


def test_suffix_names_the_labels() -> None:
    assert label_suffix(["", ""]) == ""
    assert label_suffix(["synthetic", "synthetic"]) == " (synthetic)"
    assert label_suffix(["digits", "synthetic"]) == " (partly digits and synthetic)"
