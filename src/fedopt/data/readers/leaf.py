"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

FEMNIST's x are 784 floats with the background at 1.0, and y the class in TFF's order. Shakespeare's x are 80
characters and y the next one, a window that moves by one character; windows that continue each other are put
together again to the text they were cut from, which is one snippet.

One file is in memory at a time; LEAF writes a file per hundred users.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedopt.data.readers.base import Candidate, Field, File, RawClient, SplitSource, bad, damaged, split_of

PEEK = 1 << 16
KEYS = (b'"users"', b'"user_data"')
NOTES = {
    "shakespeare": {"snippets": "windows that continue each other were joined to the text they were cut from"}
}


def candidates(files: Sequence[File], dataset: str) -> list[Candidate]:
    """The LEAF files among `files` as one set, for `emnist` or `shakespeare`."""
    by_split: dict[str, list[File]] = {}
    for file in files:
        split = split_of(file.path)
        if split is not None and _looks_like_leaf(file):
            by_split.setdefault(split, []).append(file)
    if not by_split:
        return []
    chosen = [file for some in by_split.values() for file in some]
    splits = {split: SplitSource(partial(clients, some, dataset)) for split, some in by_split.items()}
    notes = NOTES.get(dataset, {})
    return [Candidate("LEAF JSON", str(chosen[0].origin.parent), splits, tuple(chosen), notes)]


def clients(files: Sequence[File], dataset: str) -> Iterator[RawClient]:
    """The users of all files, in the files' order."""
    for file in files:
        content = _load(file)
        counts = dict(zip(content["users"], content["num_samples"], strict=True))
        for user in content["users"]:
            x, y = _samples(file, user, content["user_data"].pop(user, None))
            # LEAF's own test files of Shakespeare state 79 windows too many, so there it is not checked.
            if dataset == "emnist" and counts[user] != len(y):
                raise bad(file.shown, f"has {len(y)} samples, and num_samples says {counts[user]}", user)
            fields = _femnist(file, user, x, y) if dataset == "emnist" else _shakespeare(file, user, x, y)
            yield RawClient(file.shown, user, fields)


def _looks_like_leaf(file: File) -> bool:
    with open(file.path, "rb") as stream:
        head = stream.read(PEEK)
        stream.seek(max(0, file.path.stat().st_size - PEEK))
        tail = stream.read()
    return any(key in head or key in tail for key in KEYS)


def _load(file: File) -> dict[str, Any]:
    try:
        with open(file.path, "rb") as stream:
            content = json.load(stream)
    except UnicodeDecodeError as error:
        raise bad(file.shown, f"is not valid UTF-8 ({error.reason} at byte {error.start:,})") from None
    except (ValueError, RecursionError, OSError) as error:
        raise damaged(file.shown, error) from None
    if not isinstance(content, dict):
        raise bad(file.shown, "is not LEAF's layout: expected an object")
    types = {"users": list, "num_samples": list, "user_data": dict}
    for key, kind in types.items():
        if not isinstance(content.get(key), kind):
            raise bad(file.shown, f"is not LEAF's layout: {key!r} is missing or of another type")
    if not all(isinstance(user, str) and user for user in content["users"]):
        raise bad(file.shown, "is not LEAF's layout: `users` are not all names")
    if len(content["users"]) != len(content["num_samples"]):
        raise bad(file.shown, "is not LEAF's layout: `users` and `num_samples` differ in length")
    return content


def _samples(file: File, user: str, data: Any) -> tuple[list[Any], list[Any]]:
    _encode(file, user, user)
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("x"), list)
        or not isinstance(data.get("y"), list)
    ):
        raise bad(file.shown, "has no lists `x` and `y` in user_data, or is listed twice", user)
    x, y = data["x"], data["y"]
    if len(x) != len(y):
        raise bad(file.shown, f"has {len(x)} x and {len(y)} y", user)
    if not y:
        raise bad(file.shown, "has no examples; leave it out of the file", user)
    return x, y


def _femnist(file: File, user: str, x: list[Any], y: list[Any]) -> dict[str, Field]:
    try:
        pixels, labels = np.array(x, dtype=np.float64), np.array(y)
    except (ValueError, TypeError):
        raise bad(file.shown, "x are not lists of 784 numbers", user) from None
    if pixels.shape[1:] != (784,):
        raise bad(file.shown, f"x have shape {pixels.shape[1:]}; expected 784 numbers each", user)
    if labels.dtype.kind not in "iu":
        raise bad(file.shown, "y are not integers", user)
    return {"pixels": pixels, "label": labels}


def _shakespeare(file: File, user: str, x: list[Any], y: list[Any]) -> dict[str, Field]:
    if not all(isinstance(text, str) and text for text in [*x, *y]):
        raise bad(file.shown, "x and y are not texts", user)
    return {"snippets": [_encode(file, user, text) for text in join_windows(x, y)]}


def join_windows(x: Sequence[str], y: Sequence[str]) -> list[str]:
    """The texts from which windows were cut.

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


def _encode(file: File, user: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad(file.shown, "text holds half a character (a lone surrogate)", user) from None
