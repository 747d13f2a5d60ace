"""Text as the networks see it: rows of token ids of equal length.

Both vocabularies keep 0 for padding and number their words from 1; behind the last one come "out of
vocabulary", "beginning" and "end". A client's texts arrive as one ragged column and are encoded together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.data.store.columns import Ragged, ends
from fedopt.errors import unknown

PAD = 0


class Tokens(NamedTuple):
    """The ids behind a vocabulary of `size` words; there are size + 4 in all."""

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


# The authors' order, which is that of a public tutorial's vocabulary; a character's id is its place from 1.
ALPHABET = b"dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
CHARACTERS = Tokens(len(ALPHABET))
WORDS = Tokens(10_000)
TAGS = 500

SNIPPET = 80  # characters that are predicted from as many
SENTENCE = 20  # words

BAGS = ("as_run", "as_printed")

_IDS = np.full(256, CHARACTERS.oov, dtype=np.uint8)
_IDS[np.frombuffer(ALPHABET, dtype=np.uint8)] = np.arange(1, len(ALPHABET) + 1)


def sequences(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows `characters` makes of snippets of these lengths.

    >>> sequences(np.array([0, 79, 80]))
    array([1, 1, 2])
    """
    return -(-(lengths + 2) // (SNIPPET + 1))


def characters(snippets: Ragged) -> NDArray[np.uint8]:
    """Bytes of each snippet between "beginning" and "end", padded and cut into rows of 81, (rows, 81).

    The first 80 of a row are the input, the last 80 what is to be predicted.

    >>> characters(Ragged(np.frombuffer(b"hi", dtype=np.uint8), np.array([0, 2])))[0, :5]
    array([88,  2, 66, 89,  0], dtype=uint8)
    """
    width = SNIPPET + 1
    lengths = np.diff(snippets.offsets)
    starts = width * ends(sequences(lengths))
    row = np.zeros(starts[-1], dtype=np.uint8)
    row[starts[:-1]] = CHARACTERS.bos
    shift = starts[:-1] + 1 - snippets.offsets[:-1]  # from a byte's place in the column to its place here
    row[np.arange(len(snippets.values)) + np.repeat(shift, lengths)] = _IDS[snippets.values]
    row[starts[:-1] + 1 + lengths] = CHARACTERS.eos
    return row.reshape(-1, width)


def sentences(tokens: Ragged) -> NDArray[np.int32]:
    """ "Beginning", the first 20 words of each sentence, "end" where there is room; (sentences, 21).

    A sentence of 20 words or more has no end: the authors append it to shorter ones only.
    """
    lengths = np.minimum(np.diff(tokens.offsets), SENTENCE)
    out = np.zeros((len(lengths), SENTENCE + 1), dtype=np.int32)
    out[:, 0] = WORDS.bos
    out[:, 1:] = _padded(Ragged(tokens.values, tokens.offsets), lengths, SENTENCE)
    short = np.flatnonzero(lengths < SENTENCE)
    out[short, lengths[short] + 1] = WORDS.eos
    return out


def bags(tokens: Ragged, title: Ragged, bag: str = "as_run") -> NDArray[np.int32]:
    """The words of each sentence and its title, padded to the longest: what a bag of words is counted from.

    A word's value in the bag is its share of the row. "as_run" keeps words outside the vocabulary in the
    row, so that the values of the others sum to less than 1; "as_printed" leaves them out ("normalized to
    have sum 1").
    """
    if bag not in BAGS:
        raise unknown("data.bag", bag, BAGS)
    text = _joined(tokens, title)
    if bag == "as_printed":
        text = _only(text, text.values <= WORDS.size)
    lengths = np.diff(text.offsets)
    return _padded(text, lengths, int(lengths.max(initial=1)))


def tag_rows(tags: Ragged) -> NDArray[np.int32]:
    """The tags of each sentence among the most frequent 500, numbered from 1 and padded with 0."""
    known = _only(tags, tags.values < TAGS)
    lengths = np.diff(known.offsets)
    shifted = Ragged(known.values.astype(np.int32) + 1, known.offsets)
    return _padded(shifted, lengths, int(lengths.max(initial=1)))


def first(rows: Ragged, count: int) -> Ragged:
    """The first `count` rows."""
    offsets = rows.offsets[: count + 1]
    return Ragged(rows.values[: offsets[-1]], offsets)


def _padded(rows: Ragged, lengths: NDArray[np.int64], width: int) -> NDArray[np.int32]:
    """The first `lengths` values of each row in a matrix of `width` columns, zeros behind them."""
    out = np.zeros((len(lengths), width), dtype=np.int32)
    filled = np.arange(width) < lengths[:, None]
    starts = np.repeat(rows.offsets[:-1] - ends(lengths)[:-1], lengths)
    out[filled] = rows.values[np.arange(lengths.sum()) + starts]
    return out


def _joined(one: Ragged, other: Ragged) -> Ragged:
    """Each row of `one` followed by that of `other`."""
    lengths = np.diff(one.offsets) + np.diff(other.offsets)
    offsets = ends(lengths)
    values = np.empty(offsets[-1], dtype=one.values.dtype)
    for part, begin in ((one, offsets[:-1]), (other, offsets[:-1] + np.diff(one.offsets))):
        shift = np.repeat(begin - part.offsets[:-1], np.diff(part.offsets))
        values[np.arange(len(part.values)) + shift] = part.values
    return Ragged(values, offsets)


def _only(rows: Ragged, kept: NDArray[np.bool_]) -> Ragged:
    """The rows without the values that are not `kept`."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return Ragged(rows.values[kept], before[rows.offsets])
