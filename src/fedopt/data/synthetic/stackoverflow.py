"""Synthetic Stack Overflow: 342,477 users who write about a few topics each.

It matches the real dataset in these properties: the numbers of users and sentences, with sizes that differ by
a factor of thousands; words that follow Zipf's law, so most users lack most of the 10,000 words; tags that
depend on the topic and therefore on rare words; words that depend on the previous word.

A user has a mix of topics. A post has one topic, a title, one to five tags and several sentences. A word is a
successor of the previous word, a word of the topic, any word of the language, or out of vocabulary. The data
of a user depends only on the user's number and is generated on access, with array operations over all
sentences. Memory therefore holds only the sizes of all users.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.partition import log_dirichlet
from fedopt.data.store.columns import Ragged, offsets_from_lengths
from fedopt.data.synthetic.common import (
    Integers,
    Singles,
    check_client,
    choose,
    count_clients,
    cumulative_shares,
    heavy_tailed_sizes,
)
from fedopt.data.text import WORDS as TOKENS
from fedopt.errors import ConfigError

CLIENTS = {"train": 342_477, "test": 204_088}
EXAMPLES = {"train": 135_818_730, "test": 16_586_035}

WORDS = TOKENS.size  # ids 1 to 10000, the most frequent first
LIMIT = 1000  # sentences of a user that the tasks read

COMMON = 200  # the most frequent words, which belong to no topic
TOPICS = 100  # topic k has the tags k, k + 100, ..., k + 400, and an equal part of the other words
USER_FOCUS = 2.0  # sum of the Dirichlet parameters of a user's topics: about three topics are used
POST = 4.0  # sentences in a post, on average
LONGEST, LONGEST_TITLE = 48, 16  # words
FOLLOW, TOPICAL, UNKNOWN = 0.45, 0.20, 0.04  # shares of the kinds of words; the rest are any words
TITLE_FOLLOW, TITLE_TOPICAL = 0.25, 0.40
SUCCESSORS = np.array([0.55, 0.25, 0.12, 0.08])  # shares of the four successors of a word
TAG_RATES = np.array(
    [0.34, 0.21, 0.13, 0.10, 0.07, 0.075, 0.075]
)  # five tags of the topic, two of other topics
TAG_COUNTS = np.array([0.10, 0.27, 0.33, 0.20, 0.10])  # shares of one to five tags


@cache
def sizes(split: str) -> Integers:
    """Return the number of sentences of each user, int64 (users,): heavy-tailed, with the real total."""
    users = count_clients(CLIENTS, split)
    return heavy_tailed_sizes(
        rng.generator("synthetic_stackoverflow", "sizes", split), users, EXAMPLES[split]
    )


class UserNames(Sequence[str]):
    """The sorted names of the users, generated on access. The position is the user's number."""

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


def ids(split: str) -> UserNames:
    """Return the names of all users. The test users are the first train users, with later posts."""
    return UserNames(count_clients(CLIENTS, split))


def examples(split: str, client: int, limit: int = LIMIT) -> dict[str, Ragged]:
    """Return the first `limit` sentences of a user: columns `tokens`, `title` and `tags`, ragged uint16.

    `limit` only truncates: it does not change the sentences.
    """
    counts = sizes(split)
    client = check_client(split, client, len(counts))
    if limit < 1:
        raise ConfigError(f"limit must be at least 1, got {limit}", keys=["data.limit"])
    return _generate([_draw_user(split, client, np.arange(min(int(counts[client]), limit)))])


def chosen_examples(split: str, clients: Integers, rows: Integers) -> dict[str, Ragged]:
    """Return the sentence `rows[k]` of user `clients[k]` for all k, without generating other sentences.

    Both arrays are sorted by user, and then by row.
    """
    users, firsts = np.unique(clients, return_index=True)
    check_client(split, int(users[-1]), len(sizes(split)))
    pairs = zip(users, np.split(rows, firsts[1:]), strict=True)
    return _generate([_draw_user(split, int(user), chosen) for user, chosen in pairs])


class UserDraws(NamedTuple):
    """The random numbers and topics of some sentences of a user, and of the posts that contain them."""

    tokens: Singles  # (sentences, numbers of a sentence)
    posts: Integers  # (sentences,) positions in the arrays of posts below
    topics: Integers  # (posts,)
    titles: Singles  # (posts, numbers of a title)
    tags: Singles  # (posts, numbers of the tags)


def _draw_user(split: str, client: int, rows: Integers) -> UserDraws:
    posts, topics = _posts(split, client, int(rows[-1]) + 1)
    chosen, post = np.unique(posts[rows], return_inverse=True)
    numbers = (
        _draw_rows(_draws(purpose, split, client), width, wanted)
        for purpose, width, wanted in (
            ("tokens", 1 + 2 * LONGEST, rows),
            ("title", 1 + 2 * LONGEST_TITLE, chosen),
            ("tags", 10, chosen),
        )
    )
    tokens, titles, tags = numbers
    return UserDraws(tokens, post, topics[chosen], titles, tags)


def _draw_rows(draw: np.random.Generator, width: int, rows: Integers) -> Singles:
    """Return some rows of a matrix of random numbers. Rows before the first one are skipped."""
    first = int(rows[0])
    philox = draw.bit_generator
    assert isinstance(philox, np.random.Philox)
    blocks, rest = divmod(first * width, 8)  # a block of Philox has eight 32-bit numbers
    philox.advance(blocks)
    numbers = draw.random(rest + (int(rows[-1]) + 1 - first) * width, dtype=np.float32)
    return numbers[rest:].reshape(-1, width)[rows - first]


def _generate(users: Sequence[UserDraws]) -> dict[str, Ragged]:
    """Return the sentences of several users."""
    before = np.cumsum([0, *(len(user.topics) for user in users)])
    posts = np.concatenate([user.posts + start for user, start in zip(users, before[:-1], strict=True)])
    topics = np.concatenate([user.topics for user in users])
    tokens, titles, tags = (
        np.concatenate([getattr(user, name) for user in users]) for name in ("tokens", "titles", "tags")
    )
    return {
        "tokens": _make_sentences(tokens, topics[posts], _LENGTHS, FOLLOW, TOPICAL),
        "title": _take(_make_sentences(titles, topics, _TITLE_LENGTHS, TITLE_FOLLOW, TITLE_TOPICAL), posts),
        "tags": _take(_make_tags(tags, topics), posts),
    }


class ForumLanguage(NamedTuple):
    """The language that all users share."""

    any_word: Singles  # (WORDS,) cumulative shares of the words by Zipf's law
    topic_word: Singles  # (words of a topic,) cumulative shares, the most frequent first
    topic_words: Integers  # (TOPICS, words of a topic)
    successors: Integers  # (WORDS + 2, 4) by word; row 0 has the first words of a sentence
    successor: Singles  # (4,) cumulative
    popularity: npt.NDArray[np.float64]  # (TOPICS,) sums to 1


@cache
def _language() -> ForumLanguage:
    """Build the tables of word frequencies, topics and successors."""
    draw = rng.generator("synthetic_stackoverflow", "language")
    ranks = np.arange(1, WORDS + 1)
    share = 1.0 / (ranks + 2.7)
    cumulative = np.cumsum(share)
    # Each block of 100 words is assigned in a new random order, so all topics have words of every frequency.
    blocks = np.arange(COMMON + 1, WORDS + 1).reshape(-1, TOPICS)
    topic_words = draw.permuted(blocks, axis=1).T.copy()
    # The successors of a word are not much rarer than the word, which preserves Zipf's law.
    reach = cumulative[np.maximum(np.arange(WORDS + 2), 100).clip(max=WORDS) - 1]
    successors = 1 + np.searchsorted(cumulative, draw.random((WORDS + 2, 4)) * reach[:, None])
    popularity = 1.0 / (np.arange(TOPICS) + 4.0)
    return ForumLanguage(
        any_word=_single_shares(share),
        topic_word=_single_shares(1.0 / blocks.mean(axis=1)),
        topic_words=topic_words,
        successors=successors,
        successor=_single_shares(SUCCESSORS),
        popularity=popularity / popularity.sum(),
    )


def _posts(split: str, client: int, n: int) -> tuple[Integers, Integers]:
    """Return the post of each sentence, (n,), and the topic of each post, (posts,)."""
    language = _language()
    starts = _draws("posts", split, client).random(n) < 1.0 / POST
    posts = np.cumsum(starts) - starts[0]
    user = rng.generator("synthetic_stackoverflow", "user", client)
    logs = log_dirichlet(user, USER_FOCUS * language.popularity, TOPICS)
    mix = _single_shares(np.exp(logs - logs.max()))
    return posts, choose(mix, _draws("topics", split, client).random(posts[-1] + 1, dtype=np.float32))


def _make_sentences(u: Singles, topics: Integers, lengths: Singles, follow: float, topical: float) -> Ragged:
    """Return a sentence for each of `topics`, (n,), from its row of random numbers.

    `lengths` has cumulative shares of the lengths from 1.
    """
    language = _language()
    longest = len(lengths)
    length = 1 + choose(lengths, u[:, 0])
    within = np.arange(longest) < length[:, None]
    kind, which = u[:, 1 : 1 + longest][within], u[:, 1 + longest :][within]
    offsets = offsets_from_lengths(length)

    words = np.full(len(kind), TOKENS.oov)
    at = np.flatnonzero((follow <= kind) & (kind < follow + topical))
    words[at] = language.topic_words[np.repeat(topics, length)[at], choose(language.topic_word, which[at])]
    at = np.flatnonzero((follow + topical <= kind) & (kind < 1.0 - UNKNOWN))
    words[at] = 1 + choose(language.any_word, which[at])

    # A successor needs the previous word, so runs of successors are filled from their start.
    at = np.flatnonzero(kind < follow)
    successor = choose(language.successor, which[at])
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


def _make_tags(u: Singles, topics: Integers) -> Ragged:
    """Return one to five tags for each of `topics`, (n,), mostly of the topic and sometimes of others."""
    count = 1 + choose(_single_shares(TAG_COUNTS), u[:, 0])
    others = (topics[:, None] + 1 + (u[:, 1:3] * (TOPICS - 1)).astype(np.int64)) % TOPICS
    candidates = np.concatenate([topics[:, None] + TOPICS * np.arange(5), others + [0, TOPICS]], axis=1)
    # The smallest of exponential variates with these rates: a draw without replacement.
    arrival = -np.log1p(-u[:, 3:]) / TAG_RATES
    order = np.argsort(arrival, axis=1, kind="stable")
    chosen = np.take_along_axis(candidates, order, axis=1)[np.arange(7) < count[:, None]]
    return Ragged(chosen.astype(np.uint16), offsets_from_lengths(count))


def _take(rows: Ragged, positions: Integers) -> Ragged:
    """Return the rows at `positions`. They are ascending and include every row."""
    length = np.diff(rows.offsets)[positions]
    offsets = offsets_from_lengths(length)
    shift = np.repeat(rows.offsets[positions] - offsets[:-1], length)
    return Ragged(rows.values[np.arange(offsets[-1]) + shift], offsets)


def _lengths(mean: float, shape: float, longest: int) -> Singles:
    """Return cumulative shares of the lengths 1 to `longest`, from a gamma density."""
    length = np.arange(1, longest + 1)
    return _single_shares(length ** (shape - 1.0) * np.exp(-length * shape / mean))


def _single_shares(weights: npt.NDArray[np.floating]) -> Singles:
    return cumulative_shares(weights).astype(np.float32)


def _draws(purpose: str, split: str, client: int) -> np.random.Generator:
    return rng.generator("synthetic_stackoverflow", purpose, split, client)


_LENGTHS = _lengths(14.0, 2.0, LONGEST)
_TITLE_LENGTHS = _lengths(8.0, 5.0, LONGEST_TITLE)
