"""Shakespeare: the next character of what a role says, on 715 roles."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from fedopt.data import Arrays, Federation, text
from fedopt.data.store.columns import Ragged
from fedopt.data.synthetic import shakespeare as synthetic_shakespeare
from fedopt.models.lstm import NextCharacter
from fedopt.tasks.base import LogRange, PaperSettings, Rates, Task
from fedopt.tasks.task_data import Columns, Raw, federation, open_raw
from fedopt.tasks.text_metrics import predicted_tokens, shifted, token_accuracy, token_loss


def _snippets(columns: Columns) -> Ragged:
    snippets = columns["snippets"]
    assert isinstance(snippets, Ragged)
    return snippets


def _encoded(columns: Columns) -> Arrays:
    return (text.characters(_snippets(columns)),)


def _sequences(columns: Columns) -> int:
    return int(text.sequences(np.diff(_snippets(columns).offsets)).sum())


def _counted(source: str, split: str, raw: Raw) -> NDArray[np.int64]:
    """Sequences of each role, from the lengths of its speeches."""
    if source == "synthetic":
        counts = [_sequences_of_twin(split, role) for role in range(len(raw.ids))]
    else:
        counts = [_sequences(raw.columns(role)) for role in range(len(raw.ids))]
    return np.array(counts, dtype=np.int64)


@cache  # a twin's speech has to be made before it can be measured
def _sequences_of_twin(split: str, index: int) -> int:
    return _sequences(synthetic_shakespeare.examples(split, index))


def _twin(split: str) -> Raw:
    columns = partial(synthetic_shakespeare.examples, split)
    return Raw(synthetic_shakespeare.ids(split), synthetic_shakespeare.sizes(split), columns)


def shakespeare(source: str, *, clients: int = 0) -> Federation:
    """Rows of 81 characters, as many as each role's speeches fill."""
    train, test = open_raw(source, "shakespeare", _twin, clients)
    train = train._replace(sizes=_counted(source, "train", train))
    test = test._replace(sizes=_counted(source, "test", test))
    return federation(source, train, test, _encoded)


SHAKESPEARE = Task(
    name="shakespeare",
    what="predict the next character of a role's speech, two LSTM layers",
    federation=shakespeare,
    model=NextCharacter,
    prepare=shifted,
    loss=token_loss,
    metrics={"accuracy": token_accuracy},
    tokens=predicted_tokens,
    paper=PaperSettings(
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
