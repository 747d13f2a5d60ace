"""TFF's HDF5 layout: a group /examples/<client> with one dataset per field, a row per example.

Links, virtual datasets and external storage are rejected, because they could read other files of the machine.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

import h5py
import numpy as np

from fedopt.data.readers.base import (
    Field,
    FileSet,
    RawClient,
    SourceFile,
    SplitSource,
    convert_errors,
    data_error,
    decode_client_id,
    path_without_split,
    split_from_name,
)
from fedopt.data.readers.limits import text_bytes

CLIENTS_TO_PROBE = 3

ERRORS = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
    OverflowError,
    zlib.error,
)


def find_file_sets(files: Sequence[SourceFile], fields: Sequence[str]) -> list[FileSet]:
    """Return the sets of files, one file per split, whose clients have the field `fields[0]`."""
    file_sets: dict[Path, dict[str, SourceFile]] = {}
    for file in files:
        split = split_from_name(file.location)
        if split is not None and fields[0] in field_names(file):
            by_split = file_sets.setdefault(path_without_split(file.location), {})
            if (other := by_split.setdefault(split, file)) is not file:
                raise data_error(file, f"is the {split} split, but so is {other.display}; remove one of them")
    return [
        FileSet(
            format="TFF HDF5",
            label=(by_split.get("train") or next(iter(by_split.values()))).display,
            splits={
                split: SplitSource(partial(read_clients, file, tuple(fields)), count_clients(file))
                for split, file in by_split.items()
            },
            files=tuple(by_split.values()),
        )
        for by_split in file_sets.values()
    ]


def field_names(file: SourceFile) -> set[str]:
    """Return the fields of the first few clients."""
    names: set[str] = set()
    with _open_examples(file) as examples, convert_errors(file, ERRORS):
        for name in islice(examples, CLIENTS_TO_PROBE):
            names |= set(_client_group(file, examples, name, name))
    return names


def count_clients(file: SourceFile) -> int:
    with _open_examples(file) as examples:
        return len(examples)


def read_clients(file: SourceFile, fields: Sequence[str]) -> Iterator[RawClient]:
    """Read the clients in the order of their ids, one at a time."""
    with _open_examples(file) as examples:
        with convert_errors(file, ERRORS):
            names = sorted(examples)
        for name in names:
            client = decode_client_id(file, name.encode("utf-8", "surrogateescape"))
            with convert_errors(file, ERRORS, client):
                group = _client_group(file, examples, name, client)
                values = {field: _read_field(file, group, field, client) for field in fields}
            yield RawClient(file, client, values)


def _client_group(file: SourceFile, examples: h5py.Group, name: str, client: str) -> h5py.Group:
    if not isinstance(examples.get(name, getlink=True), h5py.HardLink):
        raise data_error(file, "is a link, which is not followed", client=client)
    group = examples[name]
    if not isinstance(group, h5py.Group):
        why = "is not a group of fields; expected /examples/<client>/<field>"
        raise data_error(file, why, client=client)
    return group


def _read_field(file: SourceFile, group: h5py.Group, field: str, client: str) -> Field:
    link = group.get(field, getlink=True)  # does not follow the link
    if link is None:
        raise data_error(file, f"has no field {field!r}", client=client)
    if not isinstance(link, h5py.HardLink):
        raise data_error(file, f"field {field!r} is a link, which is not followed", client=client)
    data = group[field]
    if not isinstance(data, h5py.Dataset) or data.ndim < 1:
        raise data_error(file, f"field {field!r} is not an array with a row per example", client=client)
    if data.is_virtual or data.external:
        raise data_error(file, f"field {field!r} is stored in another file, which is not read", client=client)
    chunk = math.prod(data.chunks or ()) * data.dtype.itemsize  # HDF5 reads whole chunks
    file.reserve_array(max(data.nbytes, chunk), f"field {field!r}", client)
    if data.dtype.kind in "OS":
        return _read_text(file, data, field, client)
    if data.dtype.kind not in "biuf":  # other types may refer to any amount of data
        raise data_error(file, f"field {field!r} holds neither numbers nor texts", client=client)
    return np.asarray(data[()])


def _read_text(file: SourceFile, data: h5py.Dataset, field: str, client: str) -> list[bytes]:
    if data.ndim != 1 or h5py.check_string_dtype(data.dtype) is None:
        raise data_error(file, f"field {field!r} is not a list of texts", client=client)
    file.reserve_array(text_bytes(data, file.path.stat().st_size), f"field {field!r}", client)
    return [value.encode() if isinstance(value, str) else value for value in data[()].tolist()]


@contextmanager
def _open_examples(file: SourceFile) -> Iterator[h5py.Group]:
    with convert_errors(file, ERRORS):
        handle = h5py.File(file.path, "r", locking=False)  # some file systems do not support locks
    with handle:
        with convert_errors(file, ERRORS):
            link = handle.get("examples", getlink=True)
            if link is not None and not isinstance(link, h5py.HardLink):
                raise data_error(file, "/examples is a link, which is not followed")
            examples = None if link is None else handle["examples"]
        if not isinstance(examples, h5py.Group):
            raise data_error(file, "has no group /examples; expected TFF's layout /examples/<client>/<field>")
        yield examples
