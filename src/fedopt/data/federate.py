"""Divide one dataset among clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedopt.data.client_data import ClientRows, count_examples, is_dataset, number_clients
from fedopt.data.structure import flatten
from fedopt.errors import DataError


def federate(dataset: Any, partition: Mapping[Any, Any] | Sequence[Any]) -> dict[str, ClientRows]:
    """Return the clients of a partition, for `fedopt.own_task(clients=...)`.

    Args:
        dataset: examples in any form that `fedopt.own_task` accepts: a pair (inputs, targets) or a dict of
            arrays, a map-style `torch.utils.data.Dataset`, or a Hugging Face `datasets.Dataset`.
        partition: the positions of each client's examples, from a function of `fedopt.partition`: a list,
            or a mapping from client ids.

    Returns:
        The clients by id. Their examples are read when the client is trained.

    Examples:
        >>> inputs, labels = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
        >>> clients = fedopt.federate((inputs, labels), [[0, 2], [1]])
        >>> {name: client.rows.tolist() for name, client in clients.items()}
        {'0': [0, 2], '1': [1]}
    """
    if not is_dataset(dataset):
        arrays, structure = flatten(tuple(dataset) if isinstance(dataset, list) else dataset)
        dataset = structure.unflatten(arrays)
    examples = count_examples(dataset)
    if not hasattr(partition, "__len__"):
        raise DataError(
            f"partition is of type {type(partition).__name__}; pass the positions of each client's examples, "
            "for example fedopt.partition.iid(labels, clients=10, seed=0)"
        )
    if not isinstance(partition, Mapping):
        partition = number_clients(partition)
    if not partition:
        raise DataError("the partition has no clients")
    clients = {
        str(name): ClientRows(dataset, _check_rows(str(name), rows, examples))
        for name, rows in partition.items()
    }
    _check_disjoint(clients, examples)
    return clients


def _check_disjoint(clients: Mapping[str, ClientRows], examples: int) -> None:
    counts = np.zeros(examples, np.int64)
    for name, client in clients.items():
        np.add.at(counts, client.rows, 1)
        if (counts > 1).any():
            raise DataError(
                f"client {name!r} has example {int(counts.argmax())} twice, or shares it with another "
                "client; a partition uses each example at most once",
                client=name,
            )


def _check_rows(client: str, rows: Any, examples: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    positions = np.asarray(rows)
    if positions.size == 0:
        raise DataError(f"client {client!r} has no examples; remove it from the partition", client=client)
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise DataError(f"client {client!r}: expected a list of positions of examples", client=client)
    if positions.min() < 0 or positions.max() >= examples:
        wrong = positions.min() if positions.min() < 0 else positions.max()
        raise DataError(
            f"client {client!r} has position {wrong}; the dataset has the positions 0 to {examples - 1}",
            client=client,
        )
    return positions.astype(np.int64)
