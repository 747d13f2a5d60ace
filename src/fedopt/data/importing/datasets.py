"""The datasets by name: what each is, and which fields of the public files it takes."""

from __future__ import annotations

from dataclasses import dataclass

from fedopt.data.readers.tabular import Roles
from fedopt.errors import UserError


@dataclass(frozen=True)
class Dataset:
    """A dataset that can be imported."""

    what: str
    formats: str
    clients: str  # as published
    fields: tuple[str, ...] = ()  # in TFF's files
    words: tuple[str, ...] = ()  # an archive in a directory is opened if its name has one of these


DATASETS: dict[str, Dataset] = {
    "emnist": Dataset(
        what="handwritten characters by writer",
        formats="TFF HDF5 or SQLite, LEAF JSON",
        clients="3,400 train, 3,400 test",
        fields=("pixels", "label"),
        words=("emnist",),
    ),
    "cifar10": Dataset(
        what="images of 10 classes, dealt by Dirichlet 0.1",
        formats="official binary files",
        clients="500 train, 100 test",
        words=("cifar10", "cifar-10-"),
    ),
    "cifar100": Dataset(
        what="images of 100 classes, dealt by Pachinko",
        formats="TFF HDF5 or SQLite, official binary files",
        clients="500 train, 100 test",
        fields=("image", "label", "coarse_label"),
        words=("cifar100", "cifar-100"),
    ),
    "shakespeare": Dataset(
        what="speeches by role",
        formats="TFF HDF5 or SQLite, LEAF JSON",
        clients="715 train, 715 test",
        fields=("snippets",),
        words=("shakespeare",),
    ),
    "stackoverflow": Dataset(
        what="sentences by user, as word ids",
        formats="TFF HDF5 or SQLite, with word_count and tag_count",
        clients="342,477 train, 204,088 test",
        fields=("tokens", "title", "tags"),
        words=("stackoverflow",),
    ),
    "own": Dataset(
        what="your own table: a client column, a label column, features",
        formats="CSV or Parquet",
        clients="any",
    ),
}


@dataclass(frozen=True)
class Options:
    """What an import can be told; most datasets need nothing."""

    seed: int = 3  # of the CIFAR partitions; with it some clients of CIFAR-100 have over 40 labels
    train_clients: int = 500
    test_clients: int = 100
    digits: bool = False  # EMNIST: the ten digits, where a directory or a file holds both
    roles: Roles | None = None  # the columns of a table
    replace: bool = False


def roles(
    name: str,
    client: str | None,
    label: str | None,
    features: str | None,
    split: str | None,
    test_share: float,
    seed: int,
) -> Roles | None:
    """The columns of a table as they are given on the command line; only a table has them."""
    given = [client, label, features, split]
    if name != "own":
        if any(given):
            raise UserError(f"columns are named for `own` only; {name} has columns of its own")
        return None
    if not client or not label:
        raise UserError("own data needs --client-column and --label-column")
    if not 0 < test_share < 1:
        raise UserError(f"--test-share must lie between 0 and 1, got {test_share}")
    chosen = tuple(part.strip() for part in (features or "").split(",") if part.strip())
    return Roles(client, label, chosen, split, test_share, seed)
