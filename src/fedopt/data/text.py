"""Encode text as rows of token ids of equal length.

In both vocabularies 0 is padding and words are numbered from 1. Three special tokens follow the last word:
out of vocabulary, beginning and end. All texts of a client are encoded together from one ragged column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.data.store.columns import Ragged, offsets_from_lengths
from fedopt.errors import unknown

PAD = 0


class Tokens(NamedTuple):
    """The token ids of a vocabulary of `size` words: size + 4 ids in total."""

    size: int

    @property
    def oov(self) -> int:
        return self.size + 1

    @property
    def bos(self) -> int:
        return self.size + 2

    @property
    def eos(self) -> int:
        return self.size + 3

    @property
    def rows(self) -> int:
        return self.size + 4


# In the order of the authors' code, which is that of a public tutorial. Ids are positions from 1.
ALPHABET = b"dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
CHARACTERS = Tokens(len(ALPHABET))
WORDS = Tokens(10_000)
TAGS = 500

SNIPPET = 80  # characters of an input row
SENTENCE = 20  # words of an input row

BAGS = ("as_run", "as_printed")

_IDS = np.full(256, CHARACTERS.oov, dtype=np.uint8)
_IDS[np.frombuffer(ALPHABET, dtype=np.uint8)] = np.arange(1, len(ALPHABET) + 1)


def count_character_rows(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of rows that `encode_characters` produces for snippets of these lengths.

    >>> count_character_rows(np.array([0, 79, 80]))
    array([1, 1, 2])
    """
    return -(-(lengths + 2) // (SNIPPET + 1))


def encode_characters(snippets: Ragged) -> NDArray[np.uint8]:
    """Encode each snippet with a beginning and an end token, padded and cut into rows, (rows, 81).

    The first 80 tokens of a row are the input, the last 80 are the targets.

    >>> encode_characters(Ragged(np.frombuffer(b"hi", dtype=np.uint8), np.array([0, 2])))[0, :5]
    array([88,  2, 66, 89,  0], dtype=uint8)
    """
    width = SNIPPET + 1
    lengths = np.diff(snippets.offsets)
    starts = width * offsets_from_lengths(count_character_rows(lengths))
    row = np.zeros(starts[-1], dtype=np.uint8)
    row[starts[:-1]] = CHARACTERS.bos
    shift = starts[:-1] + 1 - snippets.offsets[:-1]  # from a position in the column to a position in `row`
    row[np.arange(len(snippets.values)) + np.repeat(shift, lengths)] = _IDS[snippets.values]
    row[starts[:-1] + 1 + lengths] = CHARACTERS.eos
    return row.reshape(-1, width)


def encode_sentences(tokens: Ragged) -> NDArray[np.int32]:
    """Encode each sentence as a beginning token, its first 20 words and an end token, (sentences, 21).

    As in the authors' code, a sentence of 20 words or more has no end token.
    """
    lengths = np.minimum(np.diff(tokens.offsets), SENTENCE)
    out = np.zeros((len(lengths), SENTENCE + 1), dtype=np.int32)
    out[:, 0] = WORDS.bos
    out[:, 1:] = _pad(Ragged(tokens.values, tokens.offsets), lengths, SENTENCE)
    short = np.flatnonzero(lengths < SENTENCE)
    out[short, lengths[short] + 1] = WORDS.eos
    return out


def encode_bags(tokens: Ragged, title: Ragged, bag: str = "as_run") -> NDArray[np.int32]:
    """Return the words of each sentence and its title, padded to the longest. They form a bag of words.

    The value of a word in the bag is its share of the row. "as_run" keeps words outside the vocabulary in the
    row, so the values of the other words sum to less than 1. "as_printed" removes them ("normalized to have
    sum 1").
    """
    if bag not in BAGS:
        raise unknown("data.bag", bag, BAGS)
    text = _concatenate(tokens, title)
    if bag == "as_printed":
        text = _filter(text, text.values <= WORDS.size)
    lengths = np.diff(text.offsets)
    return _pad(text, lengths, int(lengths.max(initial=1)))


def encode_tags(tags: Ragged) -> NDArray[np.int32]:
    """Return the tags of each sentence among the 500 most frequent, numbered from 1 and padded with 0."""
    frequent = _filter(tags, tags.values < TAGS)
    lengths = np.diff(frequent.offsets)
    shifted = Ragged(frequent.values.astype(np.int32) + 1, frequent.offsets)
    return _pad(shifted, lengths, int(lengths.max(initial=1)))


def first_rows(rows: Ragged, count: int) -> Ragged:
    """Return the first `count` rows."""
    offsets = rows.offsets[: count + 1]
    return Ragged(rows.values[: offsets[-1]], offsets)


def _pad(rows: Ragged, lengths: NDArray[np.int64], width: int) -> NDArray[np.int32]:
    """Return the first `lengths` values of each row in a matrix of `width` columns, padded with zeros."""
    out = np.zeros((len(lengths), width), dtype=np.int32)
    filled = np.arange(width) < lengths[:, None]
    starts = np.repeat(rows.offsets[:-1] - offsets_from_lengths(lengths)[:-1], lengths)
    out[filled] = rows.values[np.arange(lengths.sum()) + starts]
    return out


def _concatenate(one: Ragged, other: Ragged) -> Ragged:
    """Append to each row of `one` the same row of `other`."""
    lengths = np.diff(one.offsets) + np.diff(other.offsets)
    offsets = offsets_from_lengths(lengths)
    values = np.empty(offsets[-1], dtype=one.values.dtype)
    for part, begin in ((one, offsets[:-1]), (other, offsets[:-1] + np.diff(one.offsets))):
        shift = np.repeat(begin - part.offsets[:-1], np.diff(part.offsets))
        values[np.arange(len(part.values)) + shift] = part.values
    return Ragged(values, offsets)


def _filter(rows: Ragged, kept: NDArray[np.bool_]) -> Ragged:
    """Keep only the values where `kept` is true."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return Ragged(rows.values[kept], before[rows.offsets])
