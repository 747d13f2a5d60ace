"""The official binary files of CIFAR-10 and CIFAR-100.

A record is the label (CIFAR-10) or the coarse and the fine label (CIFAR-100), a byte each, then 3072 bytes:
the red, the green and the blue plane of 32 x 32. The pickled version of the files is never opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.data.readers.base import Candidate, File, RawClient, SplitSource, bad

PIXELS = 3 * 32 * 32
Bytes = NDArray[np.uint8]


class Layout(NamedTuple):
    """Which files a version has, and which labels stand before the pixels."""

    labels: dict[str, int]  # name and number of classes, in the order of the bytes
    files: dict[str, tuple[str, ...]]


LAYOUTS = {
    "cifar10": Layout(
        {"label": 10},
        {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    ),
    "cifar100": Layout({"coarse_label": 20, "label": 100}, {"train": ("train.bin",), "test": ("test.bin",)}),
}

# The positions of each client's examples, for a split and its labels.
Deal = Callable[[str, dict[str, Bytes]], Sequence[NDArray[np.int64]]]


def candidates(files: Sequence[File], dataset: str, deal: Deal) -> list[Candidate]:
    """The official files among `files`, one set per directory, dealt to clients by `deal`."""
    layout = LAYOUTS[dataset]
    wanted = {name for names in layout.files.values() for name in names}
    by_directory: dict[str, dict[str, File]] = {}
    for file in files:
        if file.path.name in wanted:
            by_directory.setdefault(str(file.path.parent), {})[file.path.name] = file
    found = []
    for present in by_directory.values():
        if missing := sorted(wanted - set(present)):
            first = next(iter(present.values()))
            raise bad(str(first.origin.parent), f"{', '.join(missing)} not found beside {first.path.name}")
        splits = {
            split: SplitSource(partial(clients, [present[name] for name in names], layout, split, deal))
            for split, names in layout.files.items()
        }
        chosen = tuple(present[name] for names in layout.files.values() for name in names)
        found.append(Candidate("official binary", str(chosen[0].origin.parent), splits, chosen))
    return found


def clients(files: Sequence[File], layout: Layout, split: str, deal: Deal) -> Iterator[RawClient]:
    """The clients that the partition makes, with ids "0", "1", ... as TFF has them."""
    records = np.concatenate([read(file, layout) for file in files])
    labels = {name: records[:, at] for at, name in enumerate(layout.labels)}
    shown = files[0].shown if len(files) == 1 else f"{files[0].shown} and its siblings"
    for number, positions in enumerate(deal(split, labels)):
        planes = records[positions, len(layout.labels) :].reshape(-1, 3, 32, 32)
        yield RawClient(
            shown,
            str(number),
            {"image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1))}
            | {name: of[positions] for name, of in labels.items()},
        )


def read(file: File, layout: Layout) -> Bytes:
    """The records of a file, (n, bytes), with labels in range."""
    size, length = file.path.stat().st_size, len(layout.labels) + PIXELS
    if size == 0 or size % length:
        raise bad(
            file.shown,
            f"has {size:,} bytes, which is not a whole number of records of {length:,}; the file is cut or "
            "of another kind: get it again",
        )
    records = np.memmap(file.path, dtype=np.uint8, mode="r").reshape(-1, length)
    for at, (name, classes) in enumerate(layout.labels.items()):
        outside = np.flatnonzero(records[:, at] >= classes)
        if outside.size:
            where = f"record {outside[0]}: {name} {records[outside[0], at]}"
            raise bad(file.shown, f"{where} is out of range; allowed: 0 to {classes - 1}")
    return records
