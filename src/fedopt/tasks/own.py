"""User-defined tasks: your own model, loss, clients and metrics."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.data import Arrays, Federation, Split, from_arrays, from_function
from fedopt.data.store import StoredSplit, open_store
from fedopt.errors import DataError
from fedopt.models.flat import check_copyable
from fedopt.tasks.base import Task
from fedopt.tasks.metrics import accuracy

# Client id -> (inputs, targets), a function from an id to such a pair, or the directory of an imported table.
Clients = Mapping[str, Sequence[Any]] | Callable[[str], Sequence[Any]] | str | os.PathLike[str]


def own_task(
    model: nn.Module | Callable[[], nn.Module],
    loss: Callable[[Tensor, Tensor], Tensor],
    clients: Clients,
    test: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    client_ids: Sequence[str] | None = None,
    metrics: Mapping[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] | None = None,
    better: str = "higher",
    name: str = "own",
) -> Task:
    """Define a task.

    Args:
        model: a module, or a function that builds one; with a function, the seed decides the initial weights.
        loss: a function of outputs and targets, such as `torch.nn.functional.cross_entropy`.
        clients: a mapping from client ids to pairs of arrays (inputs, targets), a function from an id to such
            a pair, or a directory that `fedopt data import own` has written, which includes a test set.
        test: a pair of arrays, or a mapping like `clients`.
        client_ids: the ids, if `clients` is a function.
        metrics: functions of outputs and targets that return the numerator and the denominator of each
            example, as `fedopt.tasks.metrics.accuracy` does. The first metric is reported. Default: accuracy.
        better: whether a "higher" or a "lower" metric is better.
        name: the name in the configuration and in reports.
    """
    federation = _federation(clients, test, client_ids)
    if isinstance(model, nn.Module):
        check_copyable(model)
    build = partial(copy.deepcopy, model) if isinstance(model, nn.Module) else partial(_call, model)
    return Task(
        name=name,
        what="user-defined",
        federation=partial(_constant, federation),
        model=build,
        prepare=_prepare,
        loss=partial(_call, loss),
        metrics=metrics or {"accuracy": accuracy},
        better=better,
        clients_per_round=min(10, len(federation.train.ids)),
    )


def _federation(
    clients: Clients, test: Sequence[Any] | Mapping[str, Sequence[Any]] | None, ids: Sequence[str] | None
) -> Federation:
    if isinstance(clients, str | os.PathLike):
        store = open_store(Path(clients))
        train, stored_test = (_stored_split(store.split(name)) for name in ("train", "test"))
        return Federation(train, stored_test, str(clients))
    if test is None:
        raise DataError("a test set is needed: pass test=(inputs, targets)")
    if callable(clients):
        if ids is None:
            raise DataError("clients is a function, so the ids are needed too: pass client_ids=[...]")
        train = from_function(partial(_read_pair, clients), ids)
    elif isinstance(clients, Mapping):
        train = from_arrays({name: _check_pair(arrays, name) for name, arrays in clients.items()})
    else:
        raise DataError(f"clients is a {type(clients).__name__}; pass a mapping of id to (inputs, targets)")
    return Federation(train, from_arrays(test if isinstance(test, Mapping) else {"test": test}), "own")


def _stored_split(split: StoredSplit) -> Split:
    return Split(split.ids, split.sizes, partial(_stored_pair, split))


def _stored_pair(split: StoredSplit, client: int) -> Arrays:
    columns = split.columns(client)
    return np.asarray(columns["features"]), np.asarray(columns["label"])


def _read_pair(read: Callable[[str], Sequence[Any]], client: str) -> Sequence[Any]:
    return _check_pair(read(client), client)


def _check_pair(arrays: Sequence[Any], client: str) -> Sequence[Any]:
    if len(arrays) not in (0, 2):  # a client without examples is refused elsewhere
        raise DataError(
            f"client {client!r} has {len(arrays)} arrays; a client is a pair (inputs, targets)", client=client
        )
    return arrays


def _prepare(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
    inputs, targets = (part.float() if part.dtype == torch.float64 else part for part in examples)
    return inputs, targets


def _constant(value: Any, *ignored: Any) -> Any:
    return value


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function. This hides its keyword arguments, which are not configuration keys."""
    return function(*arguments)
