"""Stack Overflow: predict the next word of a sentence, or the tags of a question, on 342,477 users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedopt.data import Arrays, Federation, text
from fedopt.data.store import open_store
from fedopt.data.store.columns import Columns
from fedopt.data.synthetic import stackoverflow as synthetic_stackoverflow
from fedopt.data.text import PAD, TAGS, WORDS
from fedopt.errors import ConfigError
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import PADDING, NextWord
from fedopt.tasks.base import LogRange, PaperSettings, Rates, Task
from fedopt.tasks.batch import Batch
from fedopt.tasks.task_data import ColumnSplit, encode_federation, open_splits, ragged_column
from fedopt.tasks.text_metrics import (
    count_target_tokens,
    precision,
    recall_at_5,
    shift_tokens,
    tag_loss,
    token_accuracy,
    token_loss,
)

TAG_FILE = "tags.txt"  # of a store
LIMIT = 1000  # a client trains on its first LIMIT sentences


def _synthetic_split(limit: int, split: str) -> ColumnSplit:
    sizes = synthetic_stackoverflow.sizes(split)
    largest = limit if limit and split == "train" else int(sizes.max())
    columns = partial(synthetic_stackoverflow.examples, split, limit=largest)
    rows = partial(synthetic_stackoverflow.chosen_examples, split)
    return ColumnSplit(synthetic_stackoverflow.ids(split), sizes, columns, sample_block=10, rows=rows)


def _first_sentences(columns: Callable[[int], Columns], limit: int, index: int) -> Columns:
    client = columns(index)
    return {name: text.first_rows(ragged_column(client, name), limit) for name in client}


def _open_users(source: str, clients: int, limit: int, encode: Callable[[Columns], Arrays]) -> Federation:
    """Open users with at most `limit` sentences in training (0: all). The test set is used in full."""
    if limit < 0:
        message = f"data.limit must be 0 (all sentences) or more, got {limit}"
        raise ConfigError(message, keys=["data.limit"])
    train, test = open_splits(source, "stackoverflow", partial(_synthetic_split, limit), clients)
    if limit:
        train = train._replace(
            sizes=np.minimum(train.sizes, limit), columns=partial(_first_sentences, train.columns, limit)
        )
    return encode_federation(source, train, test, encode)


# -- next word


def _encode_sentences(columns: Columns) -> Arrays:
    return (text.encode_sentences(ragged_column(columns, "tokens")),)


def next_word(source: str, *, clients: int = 0, limit: int = LIMIT) -> Federation:
    """Open Stack Overflow as rows of 21 tokens, one per sentence."""
    return _open_users(source, clients, limit, _encode_sentences)


SO_NWP = Task(
    name="so_nwp",
    what="predict the next word of a sentence, LSTM",
    federation=next_word,
    model=NextWord,
    choices={"model.padding": PADDING},
    prepare=shift_tokens,
    loss=token_loss,
    metrics={
        "accuracy": partial(token_accuracy, excluded=(PAD, WORDS.oov, WORDS.bos, WORDS.eos)),
        "accuracy_no_oov": partial(token_accuracy, excluded=(PAD, WORDS.oov)),
        "accuracy_with_oov": token_accuracy,
    },
    eval_sample=10_000,
    full_test_at_end=True,
    tokens=count_target_tokens,
    settings=PaperSettings(
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


def _encode_words_and_tags(bag: str, columns: Columns) -> Arrays:
    words = text.encode_bags(ragged_column(columns, "tokens"), ragged_column(columns, "title"), bag)
    return words, text.encode_tags(ragged_column(columns, "tags"))


def tag_prediction(
    source: str, *, clients: int = 0, limit: int = LIMIT, bag: str = text.BAGS[0]
) -> Federation:
    """Open Stack Overflow as padded rows: the words of each sentence with its title, and its tags."""
    federation = _open_users(source, clients, limit, partial(_encode_words_and_tags, bag))
    return federation._replace(output_names=_tag_names(source))


def _tag_names(source: str) -> list[str]:
    """Return the tags of a store, most frequent first. Synthetic tags have numbers only."""
    if source != "synthetic":
        store = open_store(source)
        if TAG_FILE in store.manifest.get("texts", []):
            return store.text(TAG_FILE).splitlines()[:TAGS]
    return [f"tag {number}" for number in range(TAGS)]


def _many_hot(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    words, tags = (rows.long() for rows in examples)
    hot = torch.zeros(len(tags), TAGS + 1).scatter_(1, tags, 1.0)
    return words, hot[:, 1:].contiguous()  # without the column of the padding


def touched_words(examples: Arrays, vocabulary: int) -> tuple[NDArray[np.int64], Arrays]:
    """Return the words that occur, and the examples with these words renumbered from 1 (see `Touched`).

    Words outside the vocabulary stay outside, because they count in the size of a bag.
    """
    words, tags = examples
    indices = words.astype(np.intp)  # once; otherwise NumPy would convert the words in both lookups
    occurs = np.zeros(max(int(indices.max(initial=0)), vocabulary) + 1, dtype=bool)
    occurs[indices] = True
    rows = occurs[1 : vocabulary + 1].nonzero()[0]
    numbers = np.zeros(len(occurs), dtype=np.int64)
    numbers[rows + 1] = np.arange(1, len(rows) + 1)
    numbers[vocabulary + 1 :] = len(rows) + 1
    return rows, (numbers.take(indices), tags)


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
    settings=PaperSettings(
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
