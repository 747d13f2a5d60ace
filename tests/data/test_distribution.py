"""Sizes and labels over clients."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedopt.data import Arrays, LabelReader, Split, from_function
from fedopt.data.client_data import ExampleFormat, open_clients
from fedopt.data.distribution import CHEAP_CLIENTS, COSTLY_EXAMPLES, SHOWN_CLIENTS, summarize_clients
from fedopt.data.structure import Structure
from fedopt.data.synthetic import cifar, emnist

PAIR = Structure("tuple", (), (Structure(), Structure()))


def split_of(labels: dict[str, list[Any]]) -> Split:
    clients = {name: (np.zeros((len(values), 2)), np.array(values)) for name, values in labels.items()}
    return open_clients(clients, ExampleFormat(), PAIR)


def test_summary_of_three_clients_by_hand() -> None:
    summary = summarize_clients(split_of({"a": [0, 0, 2], "b": [2], "c": [0, 2, 2, 7, 7]}))
    assert (summary["clients"], summary["examples"]) == (3, 9)
    percentiles = summary["sizes"]["percentiles"]
    assert (percentiles["0"], percentiles["50"], percentiles["100"]) == (1, 3, 5)
    assert summary["sizes"]["edges"] == [1, 2, 3, 4, 5, 6]
    assert summary["sizes"]["counts"] == [1, 0, 1, 0, 1]
    labels = summary["labels"]
    assert labels["names"] == ["0", "2", "7"] and labels["examples"] == [3, 4, 2]
    assert labels["shown"] == {"a": [2, 1, 0], "b": [0, 1, 0], "c": [1, 2, 2]}
    assert (labels["per_client"]["0"], labels["per_client"]["50"], labels["per_client"]["100"]) == (1, 2, 3)


@pytest.mark.parametrize("sizes", [[5], [1, 1, 1], [3, 900], [1, 2, 3, 100_000], list(range(1, 400))])
def test_every_client_is_in_one_bar_of_the_size_histogram(sizes: list[int]) -> None:
    def nothing(index: int) -> Arrays:
        raise AssertionError("clients are not read")

    histogram = summarize_clients(Split([str(n) for n in range(len(sizes))], np.array(sizes), nothing))[
        "sizes"
    ]
    assert sum(histogram["counts"]) == len(sizes)
    assert histogram["edges"][0] == min(sizes) and histogram["edges"][-1] == max(sizes) + 1
    assert histogram["edges"] == sorted(set(histogram["edges"]))


@pytest.mark.parametrize("targets", [[0.5, 1.5], [[0, 1], [1, 0]]], ids=["floats", "several columns"])
def test_targets_that_are_not_class_labels_are_left_out(targets: list[Any]) -> None:
    summary = summarize_clients(split_of({"a": targets, "b": targets}))
    assert "labels" not in summary and summary["examples"] == 4


def test_integers_with_many_values_are_not_class_labels() -> None:
    assert "labels" not in summarize_clients(split_of({"a": list(range(300))}))


def test_labels_of_many_clients_are_a_sample() -> None:
    reads: list[int] = []

    def read(index: int) -> np.ndarray:
        reads.append(index)
        return np.array([index % 3] * 2)

    clients = 342_477
    ids = [str(number) for number in range(clients)]
    split = Split(ids, np.full(clients, 2), lambda index: (), labels=LabelReader(read))
    summary = summarize_clients(split)
    assert len(set(reads)) == len(reads) == CHEAP_CLIENTS == summary["labels"]["clients"]
    assert len(summary["labels"]["shown"]) == SHOWN_CLIENTS
    assert summary["examples"] == 2 * clients
    again = summarize_clients(split)
    assert again == summary and len(json.dumps(summary)) < 5000


def test_few_costly_clients_are_read_and_sizes_are_measured() -> None:
    split = from_function(lambda name: (np.zeros((1000, 1)), np.arange(1000) % 4), list(map(str, range(90))))
    summary = summarize_clients(split)
    assert summary["labels"]["clients"] == COSTLY_EXAMPLES // 1000
    assert summary["examples"] is None and summary["sizes"]["percentiles"]["50"] == 1000


def test_clients_that_cannot_be_read_are_left_out() -> None:
    def read(name: str) -> Arrays:
        if name == "b":
            raise OSError("gone")
        return np.zeros((2, 1)), np.array([0, 1])

    summary = summarize_clients(from_function(read, ["a", "b", "c"]))
    assert list(summary["labels"]["shown"]) == ["a", "c"]


def test_labels_have_their_names() -> None:
    reader = LabelReader(lambda index: np.array([1, 0, 1]), names=("cat", "dog"))
    summary = summarize_clients(Split(["a"], np.array([3]), lambda index: (), labels=reader))
    assert summary["labels"]["names"] == ["cat", "dog"] and summary["labels"]["examples"] == [1, 2]


@pytest.mark.parametrize("client", [0, 7])
def test_synthetic_labels_are_those_of_the_examples(client: int) -> None:
    assert np.array_equal(emnist.labels("train", client), emnist.examples("train", client)["label"])
    for classes in (10, 100):
        labels = cifar.labels("test", client, classes=classes)
        assert np.array_equal(labels, cifar.examples("test", client, classes=classes)["label"])
