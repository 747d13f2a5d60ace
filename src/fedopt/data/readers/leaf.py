"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

FEMNIST: x are 784 floats with background 1.0; y is the class in TFF's order. Shakespeare: x are windows of 80
characters, each shifted by one, and y is the next character. Consecutive windows are joined to the text from
which they were cut, which is one snippet. One file is in memory at a time; LEAF writes about a hundred users
per file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedopt.data.readers.base import (
    Field,
    FileSet,
    RawClient,
    SourceFile,
    SplitSource,
    data_error,
    split_from_name,
    unique_keys,
    unreadable,
)
from fedopt.data.readers.limits import MIN_BYTES_PER_LIST

PEEK = 1 << 16
KEYS = (b'"users"', b'"user_data"')
NOTES = {
    "shakespeare": {"snippets": "windows that continue each other were joined to the text they were cut from"}
}


def find_file_sets(files: Sequence[SourceFile], dataset: str) -> list[FileSet]:
    """Return the LEAF files among `files` as one set, for `emnist` or `shakespeare`."""
    by_split: dict[str, list[SourceFile]] = {}
    for file in files:
        split = split_from_name(file.location)
        if split is not None and file.format == "json" and _has_leaf_keys(file):
            by_split.setdefault(split, []).append(file)
    if not by_split:
        return []
    all_files = [file for split_files in by_split.values() for file in split_files]
    _check_neighbours(files, all_files)
    splits = {
        split: SplitSource(partial(read_clients, split_files, dataset))
        for split, split_files in by_split.items()
    }
    notes = NOTES.get(dataset, {})
    return [FileSet("LEAF JSON", str(all_files[0].origin.parent), splits, tuple(all_files), notes)]


def read_clients(files: Sequence[SourceFile], dataset: str) -> Iterator[RawClient]:
    """Read the users of all files in file order."""
    for file in files:
        file.reserve(file.path.stat().st_size)
        content = _load(file)
        counts = dict(zip(content["users"], content["num_samples"], strict=True))
        for user in content["users"]:
            x, y = _samples(file, user, content["user_data"].pop(user, None))
            # LEAF's own Shakespeare test files declare 79 windows too many, so they are not checked.
            if dataset == "emnist" and counts[user] != len(y):
                why = f"has {len(y)} samples, but num_samples is {counts[user]!r:.40}"
                raise data_error(file, why, client=user)
            if not y:
                yield RawClient(file, user, {"x": [], "y": []})
                continue
            convert = _femnist_fields if dataset == "emnist" else _shakespeare_fields
            yield RawClient(file, user, convert(file, user, x, y))


def _check_neighbours(files: Sequence[SourceFile], leaf_files: Sequence[SourceFile]) -> None:
    """Reject a damaged shard: a .json file beside LEAF files that holds no JSON object or no users."""
    folders, known = {file.location.parent for file in leaf_files}, {file.path for file in leaf_files}
    for file in files:
        if file.location.suffix != ".json" or file.location.parent not in folders or file.path in known:
            continue
        if file.format != "json":
            problem = f"is not JSON ({file.path.stat().st_size:,} bytes)"
        elif split_from_name(file.location) is not None:
            problem = "has no LEAF users"
        else:
            continue
        raise data_error(file, f"{problem}, but it is beside LEAF files; get it again or remove it")


def _has_leaf_keys(file: SourceFile) -> bool:
    with open(file.path, "rb") as stream:
        head = stream.read(PEEK)
        stream.seek(max(0, file.path.stat().st_size - PEEK))
        tail = stream.read()
    return any(key in head or key in tail for key in KEYS)


def _check_density(file: SourceFile) -> None:
    """Reject a file of tiny lists or objects, which need far more memory than LEAF's rows of numbers."""
    lists, size = 0, file.path.stat().st_size
    with open(file.path, "rb") as stream:
        while block := stream.read(PEEK):
            lists += block.count(b"[") + block.count(b"{")
    if lists > 1000 + size // MIN_BYTES_PER_LIST:
        raise data_error(file, f"does not have LEAF's layout: {lists:,} lists and objects in {size:,} bytes")


def _load(file: SourceFile) -> dict[str, Any]:
    _check_density(file)
    try:
        with open(file.path, "rb") as stream:
            content = json.load(stream, object_pairs_hook=unique_keys)
    except UnicodeDecodeError as error:
        raise data_error(file, f"is not valid UTF-8 ({error.reason} at byte {error.start:,})") from None
    except RecursionError:
        raise data_error(file, "does not have LEAF's layout: it is nested too deeply") from None
    except (ValueError, MemoryError, OSError) as error:
        raise unreadable(file, error) from None
    if not isinstance(content, dict):
        raise data_error(file, "does not have LEAF's layout: expected an object")
    for key, kind in {"users": list, "num_samples": list, "user_data": dict}.items():
        if not isinstance(content.get(key), kind):
            raise data_error(file, f"does not have LEAF's layout: {key!r} is missing or has another type")
    if not all(isinstance(user, str) and user for user in content["users"]):
        raise data_error(file, "does not have LEAF's layout: `users` must be names")
    if not content["users"]:
        raise data_error(file, "has no users; get it again or remove it")
    if len(content["users"]) != len(content["num_samples"]):
        raise data_error(file, "does not have LEAF's layout: `users` and `num_samples` differ in length")
    return content


def _samples(file: SourceFile, user: str, data: Any) -> tuple[list[Any], list[Any]]:
    _encode(file, user, user)
    x, y = (data.get("x"), data.get("y")) if isinstance(data, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list):
        why = "has no lists `x` and `y` in user_data, or occurs twice in `users`"
        raise data_error(file, why, client=user)
    if len(x) != len(y):
        raise data_error(file, f"has {len(x)} x and {len(y)} y", client=user)
    return x, y


def _femnist_fields(file: SourceFile, user: str, x: list[Any], y: list[Any]) -> dict[str, Field]:
    try:
        pixels, labels = np.array(x, dtype=np.float64), np.array(y)
    except (ValueError, TypeError, OverflowError):
        raise data_error(file, "x are not lists of 784 numbers", client=user) from None
    if pixels.shape[1:] != (784,):
        raise data_error(file, f"x have shape {pixels.shape[1:]}; expected 784 numbers each", client=user)
    if labels.dtype.kind not in "iu":
        raise data_error(file, "y are not integers", client=user)
    for row in (y, *x):  # NumPy reads true as 1 and "0.5" as 0.5
        if wrong := set(map(type, row)) - ({int} if row is y else {int, float}):
            value = next(value for value in row if type(value) in wrong)
            why = f"has the value {value!r:.40}; allowed: integers as y, numbers as x"
            raise data_error(file, why, client=user)
    return {"pixels": pixels, "label": labels}


def _shakespeare_fields(file: SourceFile, user: str, x: list[Any], y: list[Any]) -> dict[str, Field]:
    if not all(isinstance(text, str) and text for text in [*x, *y]):
        raise data_error(file, "x and y are not texts", client=user)
    return {"snippets": [_encode(file, user, text) for text in join_windows(x, y)]}


def join_windows(x: Sequence[str], y: Sequence[str]) -> list[str]:
    """Return the texts from which windows were cut.

    >>> join_windows(["To b", "o be", "Exit"], ["e", ",", "."])
    ['To be,', 'Exit.']
    """
    texts: list[list[str]] = []
    expected = None
    for window, following in zip(x, y, strict=True):
        if window == expected:
            texts[-1].append(following)
        else:
            texts.append([window, following])
        expected = (window + following)[len(following) :]
    return ["".join(parts) for parts in texts]


def _encode(file: SourceFile, user: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise data_error(file, "text has an incomplete character (a lone surrogate)", client=user) from None
