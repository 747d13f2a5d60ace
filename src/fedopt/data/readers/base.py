"""Types that all readers share, errors that name the file and the client, and splits from file names."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedopt.data.readers.limits import MAX_ID, RAISE_LIMITS, Budget, Refused
from fedopt.errors import DataError

Field = NDArray[Any] | list[bytes]


MAX_SHOWN = 200  # characters of a text of the file in a message
ACCESS_ERRORS = (errno.EACCES, errno.EPERM)
UNLIMITED = Budget(inf)


class SourceFile(NamedTuple):
    """A file to read. A member of an archive has been unpacked to `path`."""

    path: Path
    display: str  # the name for messages: "archive (member)" for a member of an archive
    format: str
    origin: Path  # the user's file: the archive, for a member of it
    location: Path  # the path of the file if archives were directories
    budget: Budget = UNLIMITED  # of the import

    def reserve(self, size: int, client: str | None = None) -> None:
        """Count bytes that will be unpacked or decoded. Raise an error if a limit is exceeded."""
        if excess := self.budget.reserve(size):
            raise data_error(self, f"{excess}; {RAISE_LIMITS}", client=client)

    def reserve_array(self, size: int, what: str, client: str | None = None) -> None:
        """Count the bytes of an array that will be in memory as a whole."""
        if size > self.budget.array_bytes:
            limit = f"allowed: {self.budget.array_bytes:,.0f}; {RAISE_LIMITS}"
            raise data_error(self, f"{what} has {size:,} bytes; {limit}", client=client)
        self.reserve(size, client)


class RawClient(NamedTuple):
    """One client as stored in a file."""

    file: SourceFile
    id: str
    fields: Mapping[str, Field]


class SplitSource(NamedTuple):
    """The clients of one split. `total` is None if their number is unknown before reading."""

    clients: Callable[[], Iterator[RawClient]]
    total: int | None = None


@dataclass(frozen=True)
class FileSet:
    """Files that together form a dataset."""

    format: str
    label: str  # the path that selects this set
    splits: Mapping[str, SplitSource]
    files: tuple[SourceFile, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableColumns:
    """The columns of a user's table. Without `features`, all other columns are features."""

    client: str
    label: str
    features: tuple[str, ...] = ()
    split: str | None = None
    test_share: float = 0.2  # of each client's rows, if neither file names nor a column give the split
    seed: int = 0

    def recorded(self) -> dict[str, Any]:
        """Return the options for the manifest."""
        split = {} if self.split is None else {"split": self.split}
        return {"test_share": self.test_share, "seed": self.seed, **split}


def data_error(
    file: SourceFile,
    why: str,
    *,
    client: str | None = None,
    line: int | None = None,
    column: str | None = None,
) -> DataError:
    """Build the error for a file, or for one client of it, that cannot be used.

    >>> file = SourceFile(Path("a.h5"), "a.h5", "hdf5", Path("a.h5"), Path("a.h5"))
    >>> str(data_error(file, "label 62 is out of range", client="f0001"))
    "a.h5: client 'f0001': label 62 is out of range"
    """
    where = f": client {client[:MAX_SHOWN]!r}" if client is not None else ""
    message = f"{file.display}{where}: {' '.join(why.split())}"
    return DataError(message, path=file.origin, client=client, line=line, column=column)


def unreadable(
    file: SourceFile, error: object, *, client: str | None = None, line: int | None = None
) -> DataError:
    """Build the error for a file that a library failed to read."""
    if isinstance(error, OSError) and error.errno in ACCESS_ERRORS:
        return data_error(file, f"cannot be read: {os.strerror(error.errno or 0)}; check its permissions")
    if isinstance(error, UnicodeDecodeError):
        return data_error(file, f"has a name that is not valid UTF-8: {error.object[:40]!r}", client=client)
    if isinstance(error, Refused):
        return data_error(file, str(error), client=client)
    if isinstance(error, MemoryError):
        return data_error(file, f"needs more memory than an import may use; {RAISE_LIMITS}", client=client)
    if "invalid utf" in str(error).lower():  # as Arrow reports it
        return data_error(file, "is not UTF-8 text; save it as UTF-8", client=client, line=line)
    if "straddling object" in str(error):  # as Arrow reports it
        why = "has a row that is longer than 4 MB; a quotation mark may not be closed"
        return data_error(file, why, client=client, line=line)
    problem = str(error)[:MAX_SHOWN] or type(error).__name__
    why = f"cannot be read ({problem}); the file is truncated or damaged: get it again"
    return data_error(file, why, client=client, line=line)


@contextmanager
def convert_errors(
    file: SourceFile, errors: tuple[type[Exception], ...], client: str | None = None
) -> Iterator[None]:
    """Convert the errors of a library to a DataError."""
    try:
        yield
    except errors as error:
        raise unreadable(file, error, client=client) from None


def check_client_id(file: SourceFile, raw: bytes) -> None:
    if len(raw) > MAX_ID:
        raise data_error(file, f"client id {raw[:40]!r}... has {len(raw):,} bytes; allowed: {MAX_ID:,}")


def decode_client_id(file: SourceFile, raw: bytes) -> str:
    check_client_id(file, raw)
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise data_error(file, f"client id {raw!r} is not valid UTF-8") from None
    if not name:
        raise data_error(file, "a client has an empty id")
    return name


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object of a JSON file. Raise ValueError if a key occurs twice; `json` would keep the last."""
    if len(found := dict(pairs)) < len(pairs):
        repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {repeated[:40]!r} occurs twice in an object")
    return found


# Matches "train" in fed_emnist_train.h5, but not "test" in latest.csv.
SPLIT = re.compile(r"(?<![a-z])(held_?out|train(?:ing)?|test(?:ing)?)(?![a-z])", re.IGNORECASE)


def split_from_name(path: Path) -> str | None:
    """Return the split in the name of a file or else of its directory.

    >>> names = ("fed_emnist_train.h5", "so_held_out.h5", "test/a.json", "latest.csv")
    >>> [split_from_name(Path(name)) for name in names]
    ['train', 'heldout', 'test', None]
    """
    match = SPLIT.search(path.name) or SPLIT.fullmatch(path.parent.name)
    if match is None:
        return None
    word = match[1].lower()
    return "heldout" if word.startswith("held") else word.removesuffix("ing")


def path_without_split(path: Path) -> Path:
    """Return the path with the split replaced by "*". It is the same for all files of one set.

    >>> [str(path_without_split(Path(name))) for name in ("a/fed_emnist_train.h5", "a/test/data.h5")]
    ['a/fed_emnist_*.h5', 'a/*/data.h5']
    """
    if SPLIT.search(path.name):
        return path.with_name(SPLIT.sub("*", path.name))
    if SPLIT.fullmatch(path.parent.name):
        return path.parent.with_name("*") / path.name
    return path
