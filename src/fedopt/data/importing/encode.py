"""From the fields of a public file to the columns of a store, checked: one function per dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopt.data.readers.base import File, RawClient, bad
from fedopt.data.store.columns import Columns, Ragged, ends, text_rows

WORDS, TAGS = 10_000, 500
OOV = WORDS + 1  # words are 1 to 10000; 0 is padding

# Files hold k/255 in single precision, computed in different ways; a step of the scale is 4e-3.
PIXEL_TOLERANCE = 1e-5


class NotEightBit(Exception):
    """Pixels that are not k/255: they are kept in single precision."""


def emnist(client: RawClient) -> Columns:
    """Pixels (n, 28, 28) as uint8, 255 on the background, and labels."""
    pixels = _pixels(client)
    eight_bit = np.rint(pixels * 255)
    if np.abs(eight_bit / 255 - pixels).max() > PIXEL_TOLERANCE:
        raise NotEightBit
    return {"pixels": eight_bit.astype(np.uint8), "label": _labels(client, "label", 62)}


def emnist_float(client: RawClient) -> Columns:
    """The same where pixels have more than 256 levels."""
    return {"pixels": _pixels(client).astype(np.float32), "label": _labels(client, "label", 62)}


def cifar10(client: RawClient) -> Columns:
    """Images (n, 32, 32, 3) as uint8 and labels."""
    return {"image": _images(client), "label": _labels(client, "label", 10)}


def cifar100(client: RawClient) -> Columns:
    """Images (n, 32, 32, 3) as uint8, fine labels and coarse ones."""
    return {
        "image": _images(client),
        "label": _labels(client, "label", 100),
        "coarse_label": _labels(client, "coarse_label", 20),
    }


def shakespeare(client: RawClient) -> Columns:
    """Snippets as the bytes that the file holds; the 86 characters are the task's."""
    return {"snippets": text_rows(_texts(client, "snippets"))}


def own(client: RawClient) -> Columns:
    """A table's columns as they are: the reader has checked them."""
    return {"features": _numbers(client, "features"), "label": _numbers(client, "label")}


class StackOverflow:
    """Sentences, titles and tags as ids; words are what stands between white space."""

    def __init__(self, words: Sequence[bytes], tags: Sequence[bytes]) -> None:
        self.words = _WithDefault({word: i for i, word in enumerate(words[:WORDS], start=1)})
        self.tags = {tag: i for i, tag in enumerate(tags[:TAGS])}

    def __call__(self, client: RawClient) -> Columns:
        return {
            "tokens": self._ids(_texts(client, "tokens")),
            "title": self._ids(_texts(client, "title")),
            "tags": self._tag_ids(_texts(client, "tags")),
        }

    def _ids(self, rows: Sequence[bytes]) -> Ragged:
        words = [row.split() for row in rows]
        offsets = ends([len(row) for row in words])
        ids = map(self.words.__getitem__, chain.from_iterable(words))
        return Ragged(np.fromiter(ids, dtype=np.uint16, count=int(offsets[-1])), offsets)

    def _tag_ids(self, rows: Sequence[bytes]) -> Ragged:
        known = [[self.tags[tag] for tag in row.split(b"|") if tag in self.tags] for row in rows]
        values = np.fromiter(chain.from_iterable(known), dtype=np.uint16)
        return Ragged(values, ends([len(row) for row in known]))


class _WithDefault(dict[bytes, int]):
    def __missing__(self, word: bytes) -> int:
        return OOV


def word_list(file: File) -> list[bytes]:
    """The words of a word_count file, `word count` a line, most frequent first."""
    lines = [line.split() for line in file.path.read_bytes().split(b"\n") if line.strip()]
    if not lines or any(len(line) != 2 or not line[1].isdigit() for line in lines[:WORDS]):
        raise bad(file.shown, "is not a word count: expected `word count` on every line")
    words = [line[0] for line in lines[:WORDS]]
    _valid_text(file.shown, None, words)
    if len(set(words)) != len(words):
        raise bad(file.shown, "holds a word twice")
    return words


def tag_list(file: File) -> list[bytes]:
    """The tags of a tag_count file, a JSON object {tag: count}, by descending count and else in its order."""
    try:
        counts = json.loads(file.path.read_bytes())
        if not isinstance(counts, dict):
            raise ValueError("not an object")
        tags = sorted(counts, key=lambda tag: -int(counts[tag]))
    except (ValueError, TypeError, RecursionError) as error:
        raise bad(
            file.shown, f"is not a tag count: expected a JSON object {{tag: count}} ({error})"
        ) from None
    return [tag.encode() for tag in tags[:TAGS]]


def _pixels(client: RawClient) -> NDArray[np.float64]:
    values = _numbers(client, "pixels")
    if values.dtype.kind != "f" or values.shape[1:] not in ((28, 28), (784,)):
        raise _bad(client, f"pixels are {values.dtype} of shape {values.shape[1:]}; expected float (28, 28)")
    values = values.reshape(-1, 28, 28).astype(np.float64)
    if not np.isfinite(values).all():
        raise _bad(client, "pixels are not finite")
    if values.size and not (-PIXEL_TOLERANCE <= values.min() and values.max() <= 1 + PIXEL_TOLERANCE):
        raise _bad(client, f"pixels go from {values.min():g} to {values.max():g}; allowed: 0 to 1")
    return values


def _images(client: RawClient) -> NDArray[np.uint8]:
    values = _numbers(client, "image")
    if values.dtype.kind not in "iu" or values.shape[1:] not in ((32, 32, 3), (3072,)):
        raise _bad(
            client, f"images are {values.dtype} of shape {values.shape[1:]}; expected uint8 (32, 32, 3)"
        )
    if values.size and not (0 <= values.min() and values.max() <= 255):
        raise _bad(client, f"images go from {values.min()} to {values.max()}; allowed: 0 to 255")
    return values.reshape(-1, 32, 32, 3).astype(np.uint8)


def _labels(client: RawClient, field: str, classes: int) -> NDArray[np.int64]:
    values = _numbers(client, field)
    if values.dtype.kind not in "iu" or values.size != len(values):
        raise _bad(client, f"field {field!r} is {values.dtype} of shape {values.shape}; expected integers")
    outside = values[(values < 0) | (values >= classes)]
    if outside.size:
        raise _bad(client, f"{field} {outside.flat[0]} is out of range; allowed: 0 to {classes - 1}")
    return values.reshape(-1).astype(np.int64)


def _numbers(client: RawClient, field: str) -> NDArray[Any]:
    values = client.fields[field]
    if isinstance(values, list):
        raise _bad(client, f"field {field!r} is text; expected numbers")
    _some(client, len(values))
    return values


def _texts(client: RawClient, field: str) -> list[bytes]:
    rows = client.fields[field]
    if not isinstance(rows, list):
        raise _bad(client, f"field {field!r} is {rows.dtype}; expected text")
    _some(client, len(rows))
    _valid_text(client.file, client.id, rows)
    return rows


def _some(client: RawClient, examples: int) -> None:
    lengths = {field: len(values) for field, values in client.fields.items()}
    if len(set(lengths.values())) > 1:
        raise _bad(client, f"fields have different numbers of examples: {_spoken(lengths)}")
    if examples == 0:
        raise _bad(client, "has no examples; leave it out of the file")


def _valid_text(file: str, client: str | None, rows: Sequence[bytes]) -> None:
    """Text that is not UTF-8 has been damaged on its way."""
    try:
        b"\n".join(rows).decode()
    except UnicodeDecodeError as error:
        raise bad(file, f"text is not valid UTF-8 ({error.reason})", client) from None


def _spoken(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{field} {n}" for field, n in lengths.items())


def _bad(client: RawClient, why: str) -> Exception:
    return bad(client.file, why, client.id)
