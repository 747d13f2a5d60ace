"""The datasets that can be imported, and the options of an import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedopt.data.readers.base import TableColumns
from fedopt.errors import UserError


@dataclass(frozen=True)
class Dataset:
    """A dataset that can be imported."""

    description: str
    formats: str
    clients: str  # as published
    fields: tuple[str, ...] = ()  # in TFF's files
    archive_names: tuple[str, ...] = ()  # archives in a directory are opened if their name has one of these


DATASETS: dict[str, Dataset] = {
    "emnist": Dataset(
        description="handwritten characters by writer",
        formats="TFF HDF5 or SQLite, LEAF JSON",
        clients="3,400 train, 3,400 test",
        fields=("pixels", "label"),
        archive_names=("emnist",),
    ),
    "cifar10": Dataset(
        description="images of 10 classes, partitioned by Dirichlet 0.1",
        formats="official binary files",
        clients="500 train, 100 test",
        archive_names=("cifar10", "cifar-10-"),
    ),
    "cifar100": Dataset(
        description="images of 100 classes, partitioned by Pachinko allocation",
        formats="TFF HDF5 or SQLite, official binary files",
        clients="500 train, 100 test",
        fields=("image", "label", "coarse_label"),
        archive_names=("cifar100", "cifar-100"),
    ),
    "shakespeare": Dataset(
        description="speeches by role",
        formats="TFF HDF5 or SQLite, LEAF JSON",
        clients="715 train, 715 test",
        fields=("snippets",),
        archive_names=("shakespeare",),
    ),
    "stackoverflow": Dataset(
        description="sentences by user, as word ids",
        formats="TFF HDF5 or SQLite, with word_count and tag_count",
        clients="342,477 train, 204,088 test",
        fields=("tokens", "title", "tags"),
        archive_names=("stackoverflow",),
    ),
    "own": Dataset(
        description="your own table: a client column, a label column, features",
        formats="CSV or Parquet",
        clients="any",
    ),
}


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import. Most datasets need none."""

    seed: int = 3  # of the CIFAR partitions; with 3, some clients of CIFAR-100 have over 40 labels
    train_clients: int = 500
    test_clients: int = 100  # CIFAR
    digits: bool = False  # EMNIST: the ten digits, if a directory or a file holds both versions
    columns: TableColumns | None = None
    replace: bool = False
    skip_empty: bool = False  # leave out clients without examples
    limit_factor: float = 1.0  # multiplies the limits on bytes and time


def import_options(
    columns: TableColumns | None, *, test_clients: int | None = None, **options: Any
) -> ImportOptions:
    """Build the options of an import from those of the command line."""
    if test_clients is not None and columns is not None:
        raise UserError("--test-clients is for CIFAR; name a column with train or test in --split-column")
    if not options.get("limit_factor", 1.0) > 0:
        raise UserError(f"--limit-factor must be positive, got {options['limit_factor']}")
    return ImportOptions(**options, columns=columns, test_clients=test_clients or 100)


def table_columns(
    name: str,
    client: str | None,
    label: str | None,
    features: str | None = None,
    split: str | None = None,
    test_share: float | None = None,
    seed: int = 0,
) -> TableColumns | None:
    """Check the table options of the command line. Only the dataset `own` has them."""
    if name != "own":
        if any([client, label, features, split, test_share]):
            raise UserError(f"column options are for the dataset `own` only; {name} has fixed columns")
        return None
    if not client or not label:
        raise UserError("own data needs --client-column and --label-column")
    if test_share is not None and (split or not 0 < test_share < 1):
        raise UserError("--test-fraction must be between 0 and 1, and has no effect with --split-column")
    names = tuple(part.strip() for part in (features or "").split(",") if part.strip())
    return TableColumns(client, label, names, split, 0.2 if test_share is None else test_share, seed)
