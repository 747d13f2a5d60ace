"""TFF's HDF5 layout: a group /examples/<client> with one dataset per field, a row per example.

Links to other files, virtual datasets and raw external storage are refused: a data file has no business
reading other files of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice

import h5py
import numpy as np

from fedopt.data.readers.base import (
    Candidate,
    Field,
    File,
    RawClient,
    SplitSource,
    bad,
    client_id,
    damaged,
    family_of,
    split_of,
)

# A dataset may claim any shape without storing it; compressed images stay far below this.
MAX_RATIO = 1000
MAX_BYTES = 1 << 30
PROBES = 3

ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError)


def candidates(files: Sequence[File], fields: Sequence[str]) -> list[Candidate]:
    """Sets of files, one per split, whose clients have the first of these fields: it tells them apart."""
    families: dict[str, dict[str, File]] = {}
    for file in files:
        split = split_of(file.path)
        if split is None or fields[0] not in field_names(file):
            continue
        family = families.setdefault(str(file.path.with_name(family_of(file.path))), {})
        family[split] = file
    return [
        Candidate(
            format="TFF HDF5",
            label=(by_split.get("train") or next(iter(by_split.values()))).shown,
            splits={
                split: SplitSource(partial(clients, file, tuple(fields)), count(file))
                for split, file in by_split.items()
            },
            files=tuple(by_split.values()),
        )
        for by_split in families.values()
    ]


def field_names(file: File) -> set[str]:
    """The fields of the first few clients."""
    found: set[str] = set()
    with _opened(file) as examples, _reading(file):
        for name in islice(examples, PROBES):
            found |= set(_client(file, examples, name, name))
    return found


def count(file: File) -> int:
    """How many clients the file holds."""
    with _opened(file) as examples:
        return len(examples)


def clients(file: File, fields: Sequence[str]) -> Iterator[RawClient]:
    """The clients in the order of their ids, one in memory at a time."""
    size = file.path.stat().st_size
    with _opened(file) as examples:
        with _reading(file):
            names = sorted(examples)
        for name in names:
            client = client_id(file.shown, name.encode("utf-8", "surrogateescape"))
            with _reading(file, client):
                group = _client(file, examples, name, client)
                found = {field: _field(file, group, field, client, size) for field in fields}
            yield RawClient(file.shown, client, found)


def _client(file: File, examples: h5py.Group, name: str, client: str) -> h5py.Group:
    if not isinstance(examples.get(name, getlink=True), h5py.HardLink):
        raise bad(file.shown, "is a link to elsewhere, which is not followed", client)
    group = examples[name]
    if not isinstance(group, h5py.Group):
        raise bad(file.shown, "is not a group of fields; expected /examples/<client>/<field>", client)
    return group


def _field(file: File, group: h5py.Group, field: str, client: str, file_size: int) -> Field:
    if not isinstance(group.get(field, getlink=True), h5py.HardLink):
        missing = field not in group
        why = f"has no field {field!r}" if missing else f"field {field!r} is a link, which is not followed"
        raise bad(file.shown, why, client)
    data = group[field]
    if not isinstance(data, h5py.Dataset) or data.ndim < 1:
        raise bad(file.shown, f"field {field!r} is not an array with a row per example", client)
    if data.is_virtual or data.external:
        raise bad(file.shown, f"field {field!r} lies in another file, which is not read", client)
    if data.nbytes > max(MAX_BYTES, MAX_RATIO * file_size):
        raise bad(file.shown, f"field {field!r} claims {data.nbytes:,} bytes, far more than the file", client)
    if data.dtype.kind in "OS":
        return _strings(file, data[()], field, client)
    return np.asarray(data[()])


def _strings(file: File, values: np.ndarray, field: str, client: str) -> list[bytes]:
    rows = [value.encode() if isinstance(value, str) else value for value in values.tolist()]
    if values.ndim != 1 or not all(isinstance(row, bytes) for row in rows):
        raise bad(file.shown, f"field {field!r} is not a list of texts", client)
    return rows


@contextmanager
def _opened(file: File) -> Iterator[h5py.Group]:
    with _reading(file):
        handle = h5py.File(file.path, "r", locking=False)  # some file systems cannot lock
    with handle:
        with _reading(file):
            examples = handle.get("examples")
        if not isinstance(examples, h5py.Group):
            raise bad(file.shown, "has no group /examples; expected TFF's layout /examples/<client>/<field>")
        yield examples


@contextmanager
def _reading(file: File, client: str | None = None) -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise damaged(file.shown, error, client) from None
