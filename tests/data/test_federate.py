"""Divide a dataset of any form among clients."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nested_clients import CLASSES, Items, MeanEmbedding, tokens
from torch import nn

import fedopt
from fedopt import partition
from fedopt.data.client_data import ExampleFormat
from fedopt.data.distribution import summarize_clients
from fedopt.errors import DataError

ARRAYS = tokens("all", 30)
CONFIG = {"clients_per_round": 2, "client.batch_size": 4}


def hugging_face(arrays: dict[str, np.ndarray]) -> Any:
    return datasets.Dataset.from_dict({name: values.tolist() for name, values in arrays.items()})


def rows_of(arrays: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in arrays.items()}


@pytest.mark.parametrize("form", [dict, Items, hugging_face])
def test_clients_have_the_rows_of_the_partition(form: Any) -> None:
    parts = partition.dirichlet(ARRAYS["labels"], clients=4, alpha=0.5, seed=1)
    by_hand = {str(i): rows_of(ARRAYS, part) for i, part in enumerate(parts)}
    test = tokens("test")
    expected = fedopt.own_task(MeanEmbedding, F.cross_entropy, by_hand, test)
    found = fedopt.own_task(MeanEmbedding, F.cross_entropy, fedopt.federate(form(ARRAYS), parts), form(test))
    results = [fedopt.run(task, rounds=2, config=CONFIG).x_sha256 for task in (expected, found)]
    assert results[0] == results[1]


def test_pair_of_arrays_is_divided_by_column() -> None:
    points, labels = np.arange(12.0).reshape(6, 2), [0, 1, 1, 0, 1, 2]
    clients = fedopt.federate([points, labels], partition.by_column(["b", "a", "b", "b", "a", "c"]))
    read = {name: ExampleFormat().read(client, name)[0] for name, client in clients.items()}
    assert {name: arrays[1].tolist() for name, arrays in read.items()} == {
        "a": [1, 1],
        "b": [0, 1, 0],
        "c": [2],
    }
    assert read["b"][0].tolist() == [[0, 1], [4, 5], [6, 7]]


def test_torch_subset_and_test_rows_of_the_same_dataset() -> None:
    """Clients and the test set may be different rows of one dataset."""
    dataset = Items(ARRAYS)
    clients = fedopt.federate(dataset, partition.iid(20, clients=2))
    task = fedopt.own_task(
        MeanEmbedding, F.cross_entropy, clients, torch.utils.data.Subset(dataset, range(20, 30))
    )
    federation = task.federation("own")
    assert federation.test.sizes.tolist() == [10]
    assert federation.train.sizes.tolist() == [10, 10]
    assert federation.test.client(0)[-1].tolist() == ARRAYS["labels"][20:].tolist()


class Counting(Items):
    reads = 0

    def __getitem__(self, index: int) -> Any:
        Counting.reads += 1
        return super().__getitem__(index)


def test_examples_are_read_when_a_client_is_trained() -> None:
    clients = fedopt.federate(Counting(ARRAYS), partition.iid(30, clients=15))
    task = fedopt.own_task(MeanEmbedding, F.cross_entropy, clients, tokens("test"))
    assert Counting.reads == 0
    fedopt.run(task, rounds=1, config={**CONFIG, "clients_per_round": 3})
    assert Counting.reads == 3 * 2


def test_shared_dataset_is_sent_to_workers_once() -> None:
    import pickle

    points = np.zeros((1000, 50), dtype=np.float32)
    clients = fedopt.federate((points, np.zeros(1000, dtype=np.int64)), partition.iid(1000, clients=100))
    task = fedopt.own_task(
        nn.Linear(50, CLASSES), F.cross_entropy, clients, (points[:2], np.zeros(2, dtype=np.int64))
    )
    assert len(pickle.dumps(task.federation("own"))) < 2 * points.nbytes


@pytest.mark.parametrize(
    ("parts", "client"),
    [
        ([[0], [1, 30]], "1"),
        ([[-1]], "0"),
        ({"a": []}, "a"),
        ({"a": [0.5]}, "a"),
        ({"a": 3}, "a"),
        ([], None),
        (10, None),
    ],
)
def test_invalid_partitions_are_refused(parts: Any, client: str | None) -> None:
    with pytest.raises(DataError) as error:
        fedopt.federate(ARRAYS, parts)
    assert error.value.client == client


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError):
        fedopt.federate({**ARRAYS, "labels": ARRAYS["labels"][:-1]}, [[0]])


def test_label_names_of_a_hugging_face_dataset_are_summarized() -> None:
    names = ["ant", "bee", "cat"]
    dataset = hugging_face(ARRAYS).cast_column("labels", datasets.ClassLabel(names=names))
    clients = fedopt.federate(dataset, partition.iid(30, clients=2))
    task = fedopt.own_task(MeanEmbedding, F.cross_entropy, clients, dataset)
    labels = summarize_clients(task.federation("own").train)["labels"]
    assert labels["names"] == names
    assert labels["examples"] == np.bincount(ARRAYS["labels"]).tolist()


def test_labels_of_a_hugging_face_column_are_partitioned() -> None:
    column = hugging_face(ARRAYS)["labels"]
    expected = partition.by_label(ARRAYS["labels"], 3, 2, seed=4)
    found = partition.by_label(column, 3, 2, seed=4)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.mark.parametrize("parts", [[[0, 1], [1, 2]], [[0, 0], [1]]], ids=["shared", "repeated"])
def test_example_that_is_used_twice_is_refused(parts: list[list[int]]) -> None:
    data = np.zeros((3, 2)), np.zeros(3, np.int64)
    with pytest.raises(DataError) as error:
        fedopt.federate(data, parts)
    assert error.value.client == ("1" if parts[0] == [0, 1] else "0")
