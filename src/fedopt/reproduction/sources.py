"""Which data a task has here: the paper's own, another real sample of it, or the synthetic twin.

Numbers that are not from the paper's data never stand beside the paper's without a word that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedopt.data.store import Store, is_store, open_store
from fedopt.data.store.columns import Ragged
from fedopt.data.store.locations import store_directory
from fedopt.errors import UserError
from fedopt.reproduction.published import DATASET_OF, DATASETS, Statistics

SYNTHETIC = "synthetic"
DIGITS = "digits"
OTHER_SAMPLE = "other sample"
_WHAT = {
    SYNTHETIC: "generated data of the same shape and sizes",
    DIGITS: "EMNIST's ten digits only",
    OTHER_SAMPLE: "real data, but other clients than the paper's",
}


_DEALT = "official binary"  # the format of CIFAR's images, which `fedopt data import` deals to clients


class Source(NamedTuple):
    """The data of one dataset."""

    dataset: str
    directory: str  # of a store, or "synthetic"
    word: str  # what it is where it is not the paper's data, else nothing


def find_sources(tasks: Sequence[str], data: str | None) -> dict[str, Source]:
    """The data of each dataset that `tasks` need.

    `data` is a store, a directory with stores by the names of datasets, or "synthetic"; without it, what
    `fedopt data` has imported. A dataset without a store has its synthetic twin.
    """
    names = list(dict.fromkeys(DATASET_OF[task] for task in tasks))
    if data == SYNTHETIC:
        return {name: _synthetic(name) for name in names}
    if data is None:
        return {name: _at(name, store_directory(name)) for name in names}
    directory = Path(data)
    if is_store(directory):
        held = open_store(directory).name
        if held not in names:
            raise UserError(f"--data {data} holds {held}; the artifact needs {' or '.join(names)}")
        return {name: _at(name, directory) if name == held else _synthetic(name) for name in names}
    found = {name: _at(name, directory / name) for name in names}
    if all(source.word == SYNTHETIC for source in found.values()):
        places = ", ".join(str(directory / name) for name in names)
        raise UserError(
            f"--data {data} holds no imported data; expected a store there or in {places}: make one with "
            f"`fedopt data import NAME PATH --to {directory}/NAME`, or leave --data out"
        )
    return found


def explain(words: Sequence[str]) -> list[str]:
    """A sentence for each word that stands beside our numbers."""
    return [f"“{word}” marks numbers from {_WHAT[word]}." for word in dict.fromkeys(words) if word]


def suffix(words: Sequence[str]) -> str:
    """What to add to "ours" where numbers from data with these words stand.

    >>> suffix([""]), suffix(["synthetic"]), suffix(["", "synthetic"])
    ('', ' (synthetic)', ' (partly synthetic)')
    """
    marks = [word for word in dict.fromkeys(words) if word]
    if not marks:
        return ""
    partly = "" if all(words) and len(marks) == 1 else "partly "
    return f" ({partly}{' and '.join(marks)})"


def statistics(source: Source) -> Statistics:
    """Clients and examples of both splits, as stored."""
    if source.directory == SYNTHETIC:
        return _twins()[source.dataset]
    splits = open_store(Path(source.directory)).manifest["splits"]
    train, test = ((splits[name]["clients"], splits[name]["examples"]) for name in ("train", "test"))
    return Statistics(*train, *test)


def _twins() -> Mapping[str, Statistics]:
    from fedopt.data.synthetic import cifar as synthetic_cifar
    from fedopt.data.synthetic import emnist as synthetic_emnist
    from fedopt.data.synthetic import shakespeare as synthetic_shakespeare
    from fedopt.data.synthetic import stackoverflow as synthetic_stackoverflow

    modules = {
        "cifar10": synthetic_cifar,
        "cifar100": synthetic_cifar,
        "emnist": synthetic_emnist,
        "shakespeare": synthetic_shakespeare,
        "stackoverflow": synthetic_stackoverflow,
    }
    sizes = {name: [module.sizes(split) for split in ("train", "test")] for name, module in modules.items()}
    return {
        name: Statistics(len(train), int(train.sum()), len(test), int(test.sum()))
        for name, (train, test) in sizes.items()
    }


def _synthetic(name: str) -> Source:
    return Source(name, SYNTHETIC, SYNTHETIC)


def _at(name: str, directory: Path) -> Source:
    """The store in `directory`, or the twin where there is none."""
    if not is_store(directory):
        return _synthetic(name)
    store = open_store(directory)
    if store.name != name:
        raise UserError(
            f"{directory} holds {store.name}, not {name}; import {name} there or name another --data"
        )
    source = Source(name, str(directory.absolute()), "")
    if name == "emnist" and _is_digits(store):
        return source._replace(word=DIGITS)
    # dealt here, the counts are the paper's and the draw is not
    dealt = store.manifest.get("notes", {}).get("format") == _DEALT
    is_papers = statistics(source) == DATASETS[name] and not dealt
    return source if is_papers else source._replace(word=OTHER_SAMPLE)


def _is_digits(store: Store) -> bool:
    labels = store.split("test").column("label")
    return not isinstance(labels, Ragged) and int(np.max(labels)) < 10
