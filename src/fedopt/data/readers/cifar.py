"""The official binary files of CIFAR-10 and CIFAR-100.

A record is one byte for the label (CIFAR-10), or one each for the coarse and the fine label (CIFAR-100), then
3072 bytes: the red, green and blue planes of 32 x 32. The pickled version of the files is never opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.data.readers.base import FileSet, RawClient, SourceFile, SplitSource, data_error
from fedopt.errors import DataError

PIXELS = 3 * 32 * 32
Bytes = NDArray[np.uint8]


class Layout(NamedTuple):
    """The files of a version, and the labels before the pixels."""

    labels: dict[str, int]  # name and number of classes, in the order of the bytes
    files: dict[str, tuple[str, ...]]


LAYOUTS = {
    "cifar10": Layout(
        {"label": 10},
        {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    ),
    "cifar100": Layout({"coarse_label": 20, "label": 100}, {"train": ("train.bin",), "test": ("test.bin",)}),
}

# (split, labels by name) -> the positions of each client's examples
Partition = Callable[[str, dict[str, Bytes]], Sequence[NDArray[np.int64]]]


def find_file_sets(files: Sequence[SourceFile], dataset: str, partition: Partition) -> list[FileSet]:
    """Return the official files among `files`, one set per directory. `partition` assigns them to clients."""
    layout = LAYOUTS[dataset]
    names = [name for split_names in layout.files.values() for name in split_names]
    by_directory: dict[str, dict[str, SourceFile]] = {}
    for file in files:
        if file.path.name in names:
            by_directory.setdefault(str(file.path.parent), {})[file.path.name] = file
    file_sets = []
    for present in by_directory.values():
        folder = next(iter(present.values())).origin.parent
        if missing := sorted(set(names) - set(present)):
            why = f"{', '.join(missing)} not found beside {next(iter(present))}"
            raise DataError(f"{folder}: {why}", path=folder)
        splits = {
            split: SplitSource(
                partial(read_clients, [present[name] for name in split_names], layout, split, partition)
            )
            for split, split_names in layout.files.items()
        }
        files_of_set = tuple(present[name] for name in names)
        file_sets.append(FileSet("official binary", str(folder), splits, files_of_set))
    return file_sets


def read_clients(
    files: Sequence[SourceFile], layout: Layout, split: str, partition: Partition
) -> Iterator[RawClient]:
    """Read the clients of the partition, with ids "0", "1", ... as in TFF."""
    records = np.concatenate([read_records(file, layout) for file in files])
    labels = {name: records[:, at] for at, name in enumerate(layout.labels)}
    file = files[0]
    if len(files) > 1:
        file = file._replace(display=f"{file.display} and the other batches")
    for number, positions in enumerate(partition(split, labels)):
        planes = records[positions, len(layout.labels) :].reshape(-1, 3, 32, 32)
        image = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        own_labels = {name: values[positions] for name, values in labels.items()}
        yield RawClient(file, str(number), {"image": image, **own_labels})


def read_records(file: SourceFile, layout: Layout) -> Bytes:
    """Return the records of a file, (n, bytes), after checking the labels."""
    size, length = file.path.stat().st_size, len(layout.labels) + PIXELS
    if size == 0 or size % length:
        why = f"has {size:,} bytes, which is not a multiple of the record size {length:,}; get the file again"
        raise data_error(file, why)
    records = np.memmap(file.path, dtype=np.uint8, mode="r").reshape(-1, length)
    for at, (name, classes) in enumerate(layout.labels.items()):
        invalid = np.flatnonzero(records[:, at] >= classes)
        if invalid.size:
            where = f"record {invalid[0]}: {name} {records[invalid[0], at]}"
            raise data_error(file, f"{where} is out of range; allowed: 0 to {classes - 1}")
    return records
