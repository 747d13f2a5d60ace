"""Stack Overflow: the next word of a sentence, and the tags of a question, on 342,477 users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedopt.data import Arrays, Federation, text
from fedopt.data.store.columns import Ragged
from fedopt.data.synthetic import stackoverflow as synthetic_stackoverflow
from fedopt.data.text import PAD, TAGS, WORDS
from fedopt.errors import UserError
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import NextWord
from fedopt.tasks.base import Batch, LogRange, PaperSettings, Rates, Task
from fedopt.tasks.task_data import Columns, Raw, federation, open_raw
from fedopt.tasks.text_metrics import (
    precision,
    predicted_tokens,
    recall_at_5,
    shifted,
    tag_loss,
    token_accuracy,
    token_loss,
)

LIMIT = 1000  # sentences that a client trains on, its first ones


def _twin(limit: int, split: str) -> Raw:
    sizes = synthetic_stackoverflow.sizes(split)
    most = limit if limit and split == "train" else int(sizes.max())
    columns = partial(synthetic_stackoverflow.examples, split, limit=most)
    return Raw(synthetic_stackoverflow.ids(split), sizes, columns, bunch=10)


def _first(columns: Callable[[int], Columns], limit: int, index: int) -> Columns:
    found = columns(index)
    return {name: text.first(c, limit) if isinstance(c, Ragged) else c[:limit] for name, c in found.items()}


def _open(source: str, clients: int, limit: int, encode: Callable[[Columns], Arrays]) -> Federation:
    """Users with at most `limit` sentences in training (0: all); the test set is used in full."""
    if limit < 0:
        raise UserError(f"data.limit must be 0 (all sentences) or more, got {limit}")
    train, test = open_raw(source, "stackoverflow", partial(_twin, limit), clients)
    if limit:
        train = train._replace(
            sizes=np.minimum(train.sizes, limit), columns=partial(_first, train.columns, limit)
        )
    return federation(source, train, test, encode)


def _column(columns: Columns, name: str) -> Ragged:
    column = columns[name]
    assert isinstance(column, Ragged)
    return column


# -- the next word


def _sentences(columns: Columns) -> Arrays:
    return (text.sentences(_column(columns, "tokens")),)


def next_word(source: str, *, clients: int = 0, limit: int = LIMIT) -> Federation:
    """Rows of 21 tokens, one for each sentence of a user."""
    return _open(source, clients, limit, _sentences)


SO_NWP = Task(
    name="so_nwp",
    what="predict the next word of a sentence, LSTM",
    federation=next_word,
    model=NextWord,
    prepare=shifted,
    loss=token_loss,
    metrics={
        "accuracy": partial(token_accuracy, left_out=(PAD, WORDS.oov, WORDS.bos, WORDS.eos)),
        "accuracy_no_oov": partial(token_accuracy, left_out=(PAD, WORDS.oov)),
        "accuracy_with_oov": token_accuracy,
    },
    eval_sample=10_000,
    full_test_at_end=True,
    tokens=predicted_tokens,
    paper=PaperSettings(
        rounds=1500,
        clients_per_round=50,
        batch_size=16,
        client_grid=LogRange(-3, 0.5),
        server_grid=LogRange(-3, 1),
        rates={
            "fedadagrad": Rates(-0.5, -1.5, -4),
            "fedadam": Rates(-0.5, -2, -5),
            "fedyogi": Rates(-0.5, -2, -5),
            "fedavgm": Rates(-0.5, 0),
            "fedavg": Rates(-0.5, 0),
        },
        results={"fedadagrad": 23.8, "fedadam": 25.2, "fedyogi": 25.2, "fedavgm": 23.8, "fedavg": 19.5},
        test_results={"fedadagrad": 24.4, "fedadam": 25.7, "fedyogi": 25.7, "fedavgm": 24.5, "fedavg": 20.5},
    ),
)


# -- tags


def _words_and_tags(bag: str, columns: Columns) -> Arrays:
    words = text.bags(_column(columns, "tokens"), _column(columns, "title"), bag)
    return words, text.tag_rows(_column(columns, "tags"))


def tag_prediction(
    source: str, *, clients: int = 0, limit: int = LIMIT, bag: str = text.BAGS[0]
) -> Federation:
    """The words of each sentence and its title, and its tags, in rows padded with 0."""
    return _open(source, clients, limit, partial(_words_and_tags, bag))


def _many_hot(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    words, tags = (rows.long() for rows in examples)
    hot = torch.zeros(len(tags), TAGS + 1).scatter_(1, tags, 1.0)
    return words, hot[:, 1:].contiguous()  # without the padding's column


def touched_words(examples: Arrays, vocabulary: int) -> tuple[NDArray[np.int64], Arrays]:
    """The words that occur, and the texts in which they are numbered from 1 without gaps.

    A word beyond the vocabulary stays beyond it, because it counts where a bag is divided.
    """
    words, tags = examples
    occurs = np.zeros(max(int(words.max(initial=0)), vocabulary) + 1, dtype=bool)
    occurs[words] = True
    rows = occurs[1 : vocabulary + 1].nonzero()[0]
    numbers = np.zeros(len(occurs), dtype=np.int64)
    numbers[rows + 1] = np.arange(1, len(rows) + 1)
    numbers[vocabulary + 1 :] = len(rows) + 1
    return rows, (numbers[words], tags)


SO_LR = Task(
    name="so_lr",
    what="predict the tags of a sentence, logistic regression on bags of words",
    federation=tag_prediction,
    model=TagRegression,
    choices={"data.bag": text.BAGS},
    prepare=_many_hot,
    loss=tag_loss,
    metrics={"recall_at_5": recall_at_5, "precision": precision},
    reduction="sum",
    touched=touched_words,
    eval_sample=10_000,
    full_test_at_end=True,
    paper=PaperSettings(
        rounds=1500,
        clients_per_round=10,
        batch_size=100,
        client_grid=LogRange(-1, 3),
        server_grid=LogRange(-2, 1.5),
        rates={
            "fedadagrad": Rates(2, 1, -2),
            "fedadam": Rates(2, -0.5, -5),
            "fedyogi": Rates(2, -0.5, -5),
            "fedavgm": Rates(2, 0),
            "fedavg": Rates(2, 0),
        },
        results={"fedadagrad": 67.1, "fedadam": 65.8, "fedyogi": 65.9, "fedavgm": 36.9, "fedavg": 30.0},
        test_results={"fedadagrad": 66.8, "fedadam": 65.2, "fedyogi": 66.5, "fedavgm": 46.5, "fedavg": 40.6},
    ),
)
