"""What every reader gives: clients with their fields as they lie in the file, and errors that say where."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedopt.errors import UserError

Field = NDArray[Any] | list[bytes]


class File(NamedTuple):
    """A file to read, with the name that a user knows it by: a member of an archive lies elsewhere."""

    path: Path
    shown: str
    kind: str
    origin: Path  # the file that the user has: the archive, for a member of it


class RawClient(NamedTuple):
    """One client as a file holds it."""

    file: str
    id: str
    fields: Mapping[str, Field]


class SplitSource(NamedTuple):
    """Where the clients of a split come from; `total` is None where it is not known before reading."""

    clients: Callable[[], Iterator[RawClient]]
    total: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A set of files that could be the dataset asked for."""

    format: str
    label: str  # what a user would point at to choose it
    splits: Mapping[str, SplitSource]
    files: tuple[File, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)


def bad(file: str, why: str, client: str | None = None) -> UserError:
    """The error for a file that cannot be used, or for one client of it.

    >>> str(bad("a.h5", "label 62 is out of range", client="f0001"))
    "a.h5: client 'f0001': label 62 is out of range"
    """
    where = f": client {client!r}" if client is not None else ""
    return UserError(f"{file}{where}: {' '.join(why.split())}")


def damaged(file: str, error: object, client: str | None = None) -> UserError:
    """The error for a file that a library could not read."""
    return bad(file, f"cannot be read ({error}); the file is cut or damaged: get it again", client)


def client_id(file: str, raw: bytes) -> str:
    """A client's id, which must be text."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise bad(file, f"client id {raw!r} is not valid UTF-8") from None
    if not name:
        raise bad(file, "a client has an empty id")
    return name


# "train" in fed_emnist_train.h5, and not "test" in latest.csv.
SPLIT = re.compile(r"(?<![a-z])(held_?out|train(?:ing)?|test(?:ing)?)(?![a-z])", re.IGNORECASE)


def split_of(path: Path) -> str | None:
    """The split that a file's name speaks of, or else that of its directory.

    >>> [split_of(Path(p)) for p in ("fed_emnist_train.h5", "so_held_out.h5", "test/a.json", "latest.csv")]
    ['train', 'heldout', 'test', None]
    """
    found = SPLIT.search(path.name) or SPLIT.fullmatch(path.parent.name)
    if found is None:
        return None
    word = found[1].lower()
    return "heldout" if word.startswith("held") else word.removesuffix("ing")


def family_of(path: Path) -> str:
    """A file's name without its split, the same for the files of one set.

    >>> family_of(Path("fed_emnist_train.h5")) == family_of(Path("fed_emnist_test.h5"))
    True
    """
    return SPLIT.sub("*", path.name)
