"""Check the fields of a file and convert them to the columns of a store, one function per dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopt.data.readers.base import RawClient, SourceFile, data_error, unique_keys
from fedopt.data.store.columns import ClientColumns, Ragged, offsets_from_lengths, text_rows
from fedopt.data.text import TAGS, WORDS

# Files hold k/255 in single precision, computed in different ways. One level is 4e-3.
PIXEL_TOLERANCE = 1e-5


class NotEightBit(Exception):
    """The pixels are not multiples of 1/255."""


def emnist(client: RawClient) -> ClientColumns:
    """Pixels (n, 28, 28) as uint8 with background 255, and labels."""
    pixels = _pixels(client)
    eight_bit = np.rint(pixels * 255)
    if np.abs(eight_bit / 255 - pixels).max() > PIXEL_TOLERANCE:
        raise NotEightBit
    return {"pixels": eight_bit.astype(np.uint8), "label": _labels(client, "label", 62)}


def emnist_float(client: RawClient) -> ClientColumns:
    """Pixels in single precision, for files with more than 256 levels, and labels."""
    return {"pixels": _pixels(client).astype(np.float32), "label": _labels(client, "label", 62)}


def cifar10(client: RawClient) -> ClientColumns:
    """Images (n, 32, 32, 3) as uint8 and labels."""
    return {"image": _images(client), "label": _labels(client, "label", 10)}


def cifar100(client: RawClient) -> ClientColumns:
    """Images (n, 32, 32, 3) as uint8, fine labels and coarse labels."""
    return {
        "image": _images(client),
        "label": _labels(client, "label", 100),
        "coarse_label": _labels(client, "coarse_label", 20),
    }


def shakespeare(client: RawClient) -> ClientColumns:
    """Snippets as the bytes of the file. The task maps them to its 86 characters."""
    return {"snippets": text_rows(_texts(client, "snippets"))}


def own(client: RawClient) -> ClientColumns:
    """The columns of a table, which the reader has checked."""
    return {"features": _numbers(client, "features"), "label": _numbers(client, "label")}


class StackOverflow:
    """Sentences, titles and tags as ids. Words are separated by white space."""

    def __init__(self, words: Sequence[bytes], tags: Sequence[bytes]) -> None:
        self.words = _WithDefault({word: i for i, word in enumerate(words[: WORDS.size], start=1)})
        self.tags = {tag: i for i, tag in enumerate(tags[:TAGS])}

    def __call__(self, client: RawClient) -> ClientColumns:
        return {
            "tokens": self._word_ids(_texts(client, "tokens")),
            "title": self._word_ids(_texts(client, "title")),
            "tags": self._tag_ids(_texts(client, "tags")),
        }

    def _word_ids(self, rows: Sequence[bytes]) -> Ragged:
        words = [row.split() for row in rows]
        offsets = offsets_from_lengths([len(row) for row in words])
        ids = map(self.words.__getitem__, chain.from_iterable(words))
        return Ragged(np.fromiter(ids, dtype=np.uint16, count=int(offsets[-1])), offsets)

    def _tag_ids(self, rows: Sequence[bytes]) -> Ragged:
        known = [[self.tags[tag] for tag in row.split(b"|") if tag in self.tags] for row in rows]
        values = np.fromiter(chain.from_iterable(known), dtype=np.uint16)
        return Ragged(values, offsets_from_lengths([len(row) for row in known]))


class _WithDefault(dict[bytes, int]):
    def __missing__(self, word: bytes) -> int:
        return WORDS.oov


def read_words(file: SourceFile) -> list[bytes]:
    """Return the words of a word_count file. It has a line `word count` per word, most frequent first."""
    lines = [line.split() for line in file.path.read_bytes().split(b"\n") if line.strip()][: WORDS.size]
    if not lines or any(len(line) != 2 or not line[1].isdigit() for line in lines):
        raise data_error(file, "is not a word count: expected `word count` on every line")
    words = [line[0] for line in lines]
    _check_utf8(file, None, words)
    if len(set(words)) != len(words):
        raise data_error(file, "has a word twice")
    return words


def read_tags(file: SourceFile) -> list[bytes]:
    """Return the tags of a tag_count file, a JSON object {tag: count}, by descending count."""
    try:
        counts = json.loads(file.path.read_bytes(), object_pairs_hook=unique_keys)
        if not isinstance(counts, dict) or not set(map(type, counts.values())) <= {int}:
            raise ValueError("not an object of integers")
        tags = sorted(counts, key=lambda tag: -counts[tag])  # equal counts keep their order
        return [tag.encode() for tag in tags[:TAGS]]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        why = f"is not a tag count: expected a JSON object {{tag: count}} ({error})"
        raise data_error(file, why) from None


def _pixels(client: RawClient) -> NDArray[np.float64]:
    values = _numbers(client, "pixels")
    if values.dtype.kind != "f" or values.shape[1:] not in ((28, 28), (784,)):
        raise _client_error(
            client, f"pixels are {values.dtype} of shape {values.shape[1:]}; expected float (28, 28)"
        )
    values = values.reshape(-1, 28, 28).astype(np.float64)
    if not np.isfinite(values).all():
        raise _client_error(client, "pixels are not finite")
    if values.size and not (-PIXEL_TOLERANCE <= values.min() and values.max() <= 1 + PIXEL_TOLERANCE):
        raise _client_error(
            client, f"pixels range from {values.min():g} to {values.max():g}; allowed: 0 to 1"
        )
    return values


def _images(client: RawClient) -> NDArray[np.uint8]:
    values = _numbers(client, "image")
    if values.dtype.kind not in "iu" or values.shape[1:] not in ((32, 32, 3), (3072,)):
        raise _client_error(
            client, f"images are {values.dtype} of shape {values.shape[1:]}; expected uint8 (32, 32, 3)"
        )
    if values.size and not (0 <= values.min() and values.max() <= 255):
        raise _client_error(client, f"images range from {values.min()} to {values.max()}; allowed: 0 to 255")
    return values.reshape(-1, 32, 32, 3).astype(np.uint8)


def _labels(client: RawClient, field: str, classes: int) -> NDArray[np.int64]:
    values = _numbers(client, field)
    if values.dtype.kind not in "iu" or values.size != len(values):
        raise _client_error(
            client, f"field {field!r} is {values.dtype} of shape {values.shape}; expected integers"
        )
    invalid = values[(values < 0) | (values >= classes)]
    if invalid.size:
        raise _client_error(client, f"{field} {invalid.flat[0]} is out of range; allowed: 0 to {classes - 1}")
    return values.reshape(-1).astype(np.int64)


def _numbers(client: RawClient, field: str) -> NDArray[Any]:
    values = client.fields[field]
    if isinstance(values, list):
        raise _client_error(client, f"field {field!r} is text; expected numbers")
    _check_lengths(client)
    return values


def _texts(client: RawClient, field: str) -> list[bytes]:
    rows = client.fields[field]
    if not isinstance(rows, list):
        raise _client_error(client, f"field {field!r} is {rows.dtype}; expected text")
    _check_lengths(client)
    _check_utf8(client.file, client.id, rows)
    return rows


def _check_lengths(client: RawClient) -> None:
    lengths = {field: len(values) for field, values in client.fields.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{field} {length}" for field, length in lengths.items())
        raise _client_error(client, f"fields have different numbers of examples: {listed}")


def _check_utf8(file: SourceFile, client: str | None, rows: Sequence[bytes]) -> None:
    try:
        b"\n".join(rows).decode()
    except UnicodeDecodeError as error:
        raise data_error(file, f"text is not valid UTF-8 ({error.reason})", client=client) from None


def _client_error(client: RawClient, why: str) -> Exception:
    return data_error(client.file, why, client=client.id)
