"""The data of each task: the paper's own data, another real sample, or the synthetic replacement.

A label marks every number that does not come from the paper's data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedopt.data import Store, is_store, local_directory, open_store, store_directory, synthetic_sizes
from fedopt.errors import DataError
from fedopt_paper.published import DATASET_BY_TASK, DATASETS, DatasetSizes

SYNTHETIC = "synthetic"
DIGITS = "digits"
OTHER_SAMPLE = "other sample"
_MEANING = {
    SYNTHETIC: "generated data of the same shape and size",
    DIGITS: "the ten digits of EMNIST only",
    OTHER_SAMPLE: "real data of other clients than in the paper",
}
_PARTITIONED_HERE = "official binary"  # `fedopt data import` partitions CIFAR images in this format


class DataSource(NamedTuple):
    """Where the data of one dataset comes from."""

    dataset: str
    directory: str  # of a store, or "synthetic"
    label: str  # "synthetic", "digits", "other sample", or "" for the paper's data


def find_data_sources(tasks: Sequence[str], data: str | None) -> dict[str, DataSource]:
    """Return the data source of each dataset that `tasks` need.

    `data` is a store or its URL, a directory of stores named after datasets, or "synthetic". The default is
    the data that `fedopt data` has imported. A dataset without a store uses synthetic data.
    """
    names = list(dict.fromkeys(DATASET_BY_TASK[task] for task in tasks))
    if data == SYNTHETIC:
        return {name: synthetic_source(name) for name in names}
    if data is None:
        return {name: _open_source(name, store_directory(name)) for name in names}
    directory = local_directory(data)
    if is_store(directory):
        stored = open_store(directory).name
        if stored not in names:
            raise DataError(
                f"--data {data} holds {stored}; the artifact needs {' or '.join(names)}", path=directory
            )
        return {n: _open_source(n, directory) if n == stored else synthetic_source(n) for n in names}
    sources = {name: _open_source(name, directory / name) for name in names}
    if all(source.label == SYNTHETIC for source in sources.values()):
        expected = ", ".join(str(directory / name) for name in names)
        raise DataError(
            f"--data {data} holds no imported data; expected a store there or in {expected}: make one with "
            f"`fedopt data import NAME PATH --to {directory}/NAME`, or omit --data",
            path=directory,
        )
    return sources


def synthetic_source(dataset: str) -> DataSource:
    return DataSource(dataset, SYNTHETIC, SYNTHETIC)


def label_notes(labels: Sequence[str]) -> list[str]:
    """Explain each label in one sentence."""
    return [f"“{label}” marks numbers from {_MEANING[label]}." for label in dict.fromkeys(labels) if label]


def label_suffix(labels: Sequence[str]) -> str:
    """Return the suffix for a heading above numbers with these labels.

    >>> label_suffix([""]), label_suffix(["synthetic"]), label_suffix(["", "synthetic"])
    ('', ' (synthetic)', ' (partly synthetic)')
    """
    distinct = [label for label in dict.fromkeys(labels) if label]
    if not distinct:
        return ""
    partly = "" if all(labels) and len(distinct) == 1 else "partly "
    return f" ({partly}{' and '.join(distinct)})"


def dataset_sizes(source: DataSource) -> DatasetSizes:
    """Count the clients and examples of both splits."""
    if source.directory == SYNTHETIC:
        train, test = (synthetic_sizes(source.dataset, split) for split in ("train", "test"))
        return DatasetSizes(len(train), int(train.sum()), len(test), int(test.sum()))
    splits = open_store(Path(source.directory)).manifest["splits"]
    stored = [splits[name][count] for name in ("train", "test") for count in ("clients", "examples")]
    return DatasetSizes(*stored)


def _open_source(name: str, directory: Path) -> DataSource:
    """Return the store in `directory`, or synthetic data if there is none."""
    if not is_store(directory):
        return synthetic_source(name)
    store = open_store(directory)
    if store.name != name:
        raise DataError(
            f"{directory} holds {store.name}, not {name}; import {name} there or choose another --data",
            path=directory,
        )
    source = DataSource(name, str(directory.absolute()), "")
    if name == "emnist" and _has_only_digits(store):
        return source._replace(label=DIGITS)
    # A partition made by the import has the paper's sizes but other clients.
    partitioned_here = store.manifest.get("notes", {}).get("format") == _PARTITIONED_HERE
    is_papers = dataset_sizes(source) == DATASETS[name] and not partitioned_here
    return source if is_papers else source._replace(label=OTHER_SAMPLE)


def _has_only_digits(store: Store) -> bool:
    return int(np.max(np.asarray(store.split("test").column("label")))) < 10
