"""TFF's HDF5 layout: a group /examples/<client> with one dataset per field, a row per example.

External links, virtual datasets and external storage are rejected, because they could read other files of
the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice

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
    name_without_split,
    split_from_name,
)

# A dataset can declare any shape without storing it. Compressed images stay far below these limits.
MAX_RATIO = 1000
MAX_BYTES = 1 << 30
CLIENTS_TO_PROBE = 3

ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError)


def find_file_sets(files: Sequence[SourceFile], fields: Sequence[str]) -> list[FileSet]:
    """Return the sets of files, one file per split, whose clients have the field `fields[0]`."""
    file_sets: dict[str, dict[str, SourceFile]] = {}
    for file in files:
        split = split_from_name(file.path)
        if split is not None and fields[0] in field_names(file):
            file_sets.setdefault(str(file.path.with_name(name_without_split(file.path))), {})[split] = file
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
    size = file.path.stat().st_size
    with _open_examples(file) as examples:
        with convert_errors(file, ERRORS):
            names = sorted(examples)
        for name in names:
            client = decode_client_id(file, name.encode("utf-8", "surrogateescape"))
            with convert_errors(file, ERRORS, client):
                group = _client_group(file, examples, name, client)
                values = {field: _read_field(file, group, field, client, size) for field in fields}
            yield RawClient(file, client, values)


def _client_group(file: SourceFile, examples: h5py.Group, name: str, client: str) -> h5py.Group:
    if not isinstance(examples.get(name, getlink=True), h5py.HardLink):
        raise data_error(file, "is a link, which is not followed", client=client)
    group = examples[name]
    if not isinstance(group, h5py.Group):
        why = "is not a group of fields; expected /examples/<client>/<field>"
        raise data_error(file, why, client=client)
    return group


def _read_field(file: SourceFile, group: h5py.Group, field: str, client: str, file_size: int) -> Field:
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
    if data.nbytes > max(MAX_BYTES, MAX_RATIO * file_size):
        why = f"field {field!r} declares {data.nbytes:,} bytes, far more than the file has"
        raise data_error(file, why, client=client)
    if data.dtype.kind in "OS":
        return _read_text(file, data[()], field, client)
    return np.asarray(data[()])


def _read_text(file: SourceFile, values: np.ndarray, field: str, client: str) -> list[bytes]:
    rows = [value.encode() if isinstance(value, str) else value for value in values.tolist()]
    if values.ndim != 1 or not all(isinstance(row, bytes) for row in rows):
        raise data_error(file, f"field {field!r} is not a list of texts", client=client)
    return rows


@contextmanager
def _open_examples(file: SourceFile) -> Iterator[h5py.Group]:
    with convert_errors(file, ERRORS):
        handle = h5py.File(file.path, "r", locking=False)  # some file systems do not support locks
    with handle:
        with convert_errors(file, ERRORS):
            examples = handle.get("examples")
        if not isinstance(examples, h5py.Group):
            raise data_error(file, "has no group /examples; expected TFF's layout /examples/<client>/<field>")
        yield examples
