"""Shakespeare: predict the next character of a role's speech, on 715 roles."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from fedopt.data import Arrays, Federation, text
from fedopt.data.store.columns import Columns
from fedopt.data.synthetic import shakespeare as synthetic_shakespeare
from fedopt.models.lstm import PADDING, NextCharacter
from fedopt.tasks.base import LogRange, PaperSettings, Rates, Task
from fedopt.tasks.task_data import ColumnSplit, encode_federation, open_splits, ragged_column
from fedopt.tasks.text_metrics import count_target_tokens, shift_tokens, token_accuracy, token_loss


def _encode(columns: Columns) -> Arrays:
    return (text.encode_characters(ragged_column(columns, "snippets")),)


def _count_rows(columns: Columns) -> int:
    lengths = np.diff(ragged_column(columns, "snippets").offsets)
    return int(text.count_character_rows(lengths).sum())


def _count_all_rows(source: str, split: str, data: ColumnSplit) -> NDArray[np.int64]:
    """Return the number of rows of each role, from the lengths of its speeches."""
    if source == "synthetic":
        counts = [_count_synthetic_rows(split, role) for role in range(len(data.ids))]
    else:
        counts = [_count_rows(data.columns(role)) for role in range(len(data.ids))]
    return np.array(counts, dtype=np.int64)


@cache  # the speeches must be generated to count their rows
def _count_synthetic_rows(split: str, index: int) -> int:
    return _count_rows(synthetic_shakespeare.examples(split, index))


def _synthetic_split(split: str) -> ColumnSplit:
    columns = partial(synthetic_shakespeare.examples, split)
    return ColumnSplit(synthetic_shakespeare.ids(split), synthetic_shakespeare.sizes(split), columns)


def shakespeare(source: str, *, clients: int = 0) -> Federation:
    """Open Shakespeare by role, as rows of 81 characters."""
    train, test = open_splits(source, "shakespeare", _synthetic_split, clients)
    train = train._replace(sizes=_count_all_rows(source, "train", train))
    test = test._replace(sizes=_count_all_rows(source, "test", test))
    return encode_federation(source, train, test, _encode)


SHAKESPEARE = Task(
    name="shakespeare",
    what="predict the next character of a role's speech, two LSTM layers",
    federation=shakespeare,
    model=NextCharacter,
    choices={"model.padding": PADDING},
    prepare=shift_tokens,
    loss=token_loss,
    metrics={"accuracy": token_accuracy},
    tokens=count_target_tokens,
    settings=PaperSettings(
        rounds=1500,
        clients_per_round=10,
        batch_size=4,
        client_grid=LogRange(-3, 0.5),
        server_grid=LogRange(-3, 1),
        rates={
            "fedadagrad": Rates(0, -0.5, -1),
            "fedadam": Rates(0, -2, -3),
            "fedyogi": Rates(0, -2, -3),
            "fedavgm": Rates(0, -0.5),
            "fedavg": Rates(0, 0),
        },
        results={"fedadagrad": 57.5, "fedadam": 57.0, "fedyogi": 57.2, "fedavgm": 57.3, "fedavg": 56.9},
    ),
)
