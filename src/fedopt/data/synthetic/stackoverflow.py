"""A synthetic twin of federated Stack Overflow: 342,477 users who write about a few topics each.

It needs no download and keeps what makes the real set what it is: as many users and sentences, with sizes
that differ by a factor of thousands; words that follow Zipf's law, so that most of the 10,000 are absent from
most users and a word's gradient comes from few of them; tags that follow from the topic and hence from rare
words; and words that depend on the word before.

A user owns a mix of topics. Sentences come in posts, and a post has one topic, a title and one to five tags.
A word follows from the one before, belongs to the post's topic, is any word of the language, or is out of
the vocabulary. Everything about a user is drawn from the user's number when it is asked for, with array
operations over all sentences, so the population costs nothing but the array of its sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.partition import log_dirichlet
from fedopt.data.store.columns import Ragged
from fedopt.errors import UserError, unknown

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

CLIENTS = {"train": 342_477, "test": 204_088}
EXAMPLES = {"train": 135_818_730, "test": 16_586_035}

WORDS = 10_000  # ids 1 to 10000, the most frequent first
OOV = WORDS + 1
TAGS = 500  # ids 0 to 499
LIMIT = 1000  # sentences of a user that the tasks read

COMMON = 200  # words at the top of the list that belong to no topic
TOPICS = 100  # topic k owns the tags k, k + 100, ..., and its share of the other words
USER_FOCUS = 2.0  # sum of the Dirichlet parameters of a user's topic mix: about three topics in use
POST = 4.0  # sentences in a post, on average
LONGEST, LONGEST_TITLE = 48, 16  # words
FOLLOW, TOPICAL, UNKNOWN = 0.45, 0.20, 0.04  # shares of the kinds of words; the rest is any word
TITLE_FOLLOW, TITLE_TOPICAL = 0.25, 0.40
SUCCESSORS = np.array([0.55, 0.25, 0.12, 0.08])  # how often each of a word's four successors follows
TAG_RATES = np.array([0.34, 0.21, 0.13, 0.10, 0.07, 0.075, 0.075])  # the topic's five, two of other topics
TAG_COUNTS = np.array([0.10, 0.27, 0.33, 0.20, 0.10])  # of one to five tags


@cache
def sizes(split: str) -> Ints:
    """Sentences of every user, int64 (clients,): heavy-tailed, at least 1, and exactly the real total."""
    if split not in CLIENTS:
        raise unknown("split", split, CLIENTS)
    draw = rng.generator("synthetic_stackoverflow", "sizes", split)
    users, total = CLIENTS[split], EXAMPLES[split]
    ends = np.cumsum(draw.lognormal(0.0, 1.4, users))
    # One sentence each; the others are cut where the running sum passes whole numbers, so none is lost.
    ends = np.floor(ends / ends[-1] * (total - users))
    counts: Ints = 1 + np.diff(ends, prepend=0.0).astype(np.int64)
    counts.setflags(write=False)  # every caller is given the same cached array
    return counts


class Users(Sequence[str]):
    """The users' names in sorted order, made when asked for; the position is the user's number."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        number = range(self._count)[index]
        return f"user{number:06d}" if isinstance(number, int) else [f"user{n:06d}" for n in number]


def ids(split: str) -> Users:
    """Names of all users; those of the test split are the first ones of the train split, with later posts."""
    if split not in CLIENTS:
        raise unknown("split", split, CLIENTS)
    return Users(CLIENTS[split])


def examples(split: str, client: int, limit: int = LIMIT) -> dict[str, Ragged]:
    """The first `limit` sentences of a user: `tokens`, `title` and `tags`, each ragged uint16.

    A function of the split and the user alone; `limit` only cuts.
    """
    counts, client = sizes(split), int(client)  # a NumPy number would be another key
    if not 0 <= client < len(counts):
        raise UserError(f"there is no user {client} in {split}; users are numbered 0 to {len(counts) - 1}")
    if limit < 1:
        raise UserError(f"limit must be at least 1, got {limit}")
    n = min(int(counts[client]), limit)
    posts, topics = _posts(split, client, n)
    tokens = _text(_draws("tokens", split, client), topics[posts], _LENGTHS, FOLLOW, TOPICAL)
    titles = _text(_draws("title", split, client), topics, _TITLE_LENGTHS, TITLE_FOLLOW, TITLE_TOPICAL)
    tags = _tags(_draws("tags", split, client), topics)
    return {"tokens": tokens, "title": _take(titles, posts), "tags": _take(tags, posts)}


class Language(NamedTuple):
    """What all users share."""

    any_word: Floats  # (WORDS,) cumulative shares of the words by Zipf's law
    topic_word: Floats  # (owned,) cumulative shares of a topic's words, the most frequent first
    topic_words: Ints  # (TOPICS, owned)
    successors: Ints  # (WORDS + 2, 4) by word; row 0 holds the words that begin a sentence
    successor: Floats  # (4,) cumulative
    popularity: npt.NDArray[np.float64]  # (TOPICS,) sums to 1


@cache
def _language() -> Language:
    """The words' frequencies, the topics and the successors, the same in every process."""
    draw = rng.generator("synthetic_stackoverflow", "language")
    ranks = np.arange(1, WORDS + 1)
    share = 1.0 / (ranks + 2.7)
    cumulative = np.cumsum(share)
    # Every hundred words go to the topics in a new order, so that all topics have words of every frequency.
    hands = np.arange(COMMON + 1, WORDS + 1).reshape(-1, TOPICS)
    topic_words = draw.permuted(hands, axis=1).T.copy()
    # A word is never followed by a much rarer one, so that following does not undo Zipf's law.
    reach = cumulative[np.maximum(np.arange(WORDS + 2), 100).clip(max=WORDS) - 1]
    successors = 1 + np.searchsorted(cumulative, draw.random((WORDS + 2, 4)) * reach[:, None])
    popularity = 1.0 / (np.arange(TOPICS) + 4.0)
    return Language(
        any_word=_shares(share),
        topic_word=_shares(1.0 / hands.mean(axis=1)),
        topic_words=topic_words,
        successors=successors,
        successor=_shares(SUCCESSORS),
        popularity=popularity / popularity.sum(),
    )


def _posts(split: str, client: int, n: int) -> tuple[Ints, Ints]:
    """The post (n,) of each sentence, and the topic (posts,) of each post."""
    language = _language()
    starts = _draws("posts", split, client).random(n) < 1.0 / POST
    posts = np.cumsum(starts) - starts[0]
    user = rng.generator("synthetic_stackoverflow", "user", client)
    logs = log_dirichlet(user, USER_FOCUS * language.popularity, TOPICS)
    mix = _shares(np.exp(logs - logs.max()))
    return posts, _pick(mix, _draws("topics", split, client).random(posts[-1] + 1, dtype=np.float32))


def _text(draw: np.random.Generator, topics: Ints, lengths: Floats, follow: float, topical: float) -> Ragged:
    """A sentence about each of `topics` (n,); `lengths` are cumulative shares of the lengths from 1 word."""
    language = _language()
    n, longest = len(topics), len(lengths)
    # One row of numbers for a sentence: its text does not depend on how many sentences are asked for.
    u = draw.random((n, 1 + 2 * longest), dtype=np.float32)
    length = 1 + _pick(lengths, u[:, 0])
    within = np.arange(longest) < length[:, None]
    kind, which = u[:, 1 : 1 + longest][within], u[:, 1 + longest :][within]
    offsets = np.concatenate([[0], np.cumsum(length)])

    words = np.full(len(kind), OOV)
    at = np.flatnonzero((follow <= kind) & (kind < follow + topical))
    words[at] = language.topic_words[np.repeat(topics, length)[at], _pick(language.topic_word, which[at])]
    at = np.flatnonzero((follow + topical <= kind) & (kind < 1.0 - UNKNOWN))
    words[at] = 1 + _pick(language.any_word, which[at])

    # A word that follows from the one before must wait for it: runs of them are filled from the front.
    at = np.flatnonzero(kind < follow)
    successor = _pick(language.successor, which[at])
    first = np.isin(at, offsets[:-1], assume_unique=True)
    words[at[first]] = language.successors[0, successor[first]]
    at, successor = at[~first], successor[~first]
    place = np.arange(len(at))
    begins = np.concatenate([[True], np.diff(at) > 1])[: len(at)]
    depth = place - np.maximum.accumulate(np.where(begins, place, 0))
    for d in range(int(depth.max(initial=-1)) + 1):
        ready = np.flatnonzero(depth == d)
        words[at[ready]] = language.successors[words[at[ready] - 1], successor[ready]]
    return Ragged(words.astype(np.uint16), offsets)


def _tags(draw: np.random.Generator, topics: Ints) -> Ragged:
    """One to five tags for each of `topics` (n,): mostly the topic's own five, sometimes of other topics."""
    n = len(topics)
    u = draw.random((n, 10), dtype=np.float32)
    count = 1 + _pick(_shares(TAG_COUNTS), u[:, 0])
    others = (topics[:, None] + 1 + (u[:, 1:3] * (TOPICS - 1)).astype(np.int64)) % TOPICS
    candidates = np.concatenate([topics[:, None] + TOPICS * np.arange(5), others + [0, TOPICS]], axis=1)
    # The first to arrive of exponential clocks at these rates: a draw without replacement.
    arrival = -np.log1p(-u[:, 3:]) / TAG_RATES
    order = np.argsort(arrival, axis=1, kind="stable")
    chosen = np.take_along_axis(candidates, order, axis=1)[np.arange(7) < count[:, None]]
    return Ragged(chosen.astype(np.uint16), np.concatenate([[0], np.cumsum(count)]))


def _take(rows: Ragged, positions: Ints) -> Ragged:
    """The rows at `positions`, which ascend and leave out none, one row for each."""
    length = np.diff(rows.offsets)[positions]
    offsets = np.concatenate([[0], np.cumsum(length)])
    shift = np.repeat(rows.offsets[positions] - offsets[:-1], length)
    return Ragged(rows.values[np.arange(offsets[-1]) + shift], offsets)


def _lengths(mean: float, shape: float, longest: int) -> Floats:
    """Cumulative shares of the lengths 1 to `longest`, about a gamma distribution."""
    length = np.arange(1, longest + 1)
    return _shares(length ** (shape - 1.0) * np.exp(-length * shape / mean))


def _shares(weights: npt.NDArray[np.floating]) -> Floats:
    """Cumulative shares, which end at 1."""
    total = np.cumsum(weights)
    return np.asarray(total / total[-1], dtype=np.float32)


def _pick(cumulative: Floats, u: Floats) -> Ints:
    """Positions drawn with the shares' probabilities from uniform numbers below 1."""
    return np.searchsorted(cumulative, u, side="right")


def _draws(purpose: str, split: str, client: int) -> np.random.Generator:
    return rng.generator("synthetic_stackoverflow", purpose, split, client)


_LENGTHS = _lengths(14.0, 2.0, LONGEST)
_TITLE_LENGTHS = _lengths(8.0, 5.0, LONGEST_TITLE)
