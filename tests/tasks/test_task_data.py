"""The data of tasks: clients, sizes and encoded examples, from synthetic data and from stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedopt.data.store import write_store
from fedopt.data.store.columns import ragged, text_rows
from fedopt.engine.executors.serial import Serial
from fedopt.errors import ConfigError, DataError
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.resolve import resolve
from fedopt.runs.result import RunResult
from fedopt.tasks.base import Task
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP

TASKS = (CIFAR10, CIFAR100, EMNIST_AE, EMNIST_CR, SHAKESPEARE, SO_LR, SO_NWP)
EACH = pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])


@EACH
def test_sizes_match_the_examples_of_clients(task: Task) -> None:
    federation = task.federation("synthetic", clients=30)
    for split in (federation.train, federation.test):
        assert len(split.ids) == len(split.sizes) == 30
        for client in (0, 29):
            assert len(split.client(client)[0]) == split.sizes[client]


# Train and test clients in the paper's table of datasets.
POPULATION = {"cifar": (500, 100), "emnist": (3400, 3400), "shakes": (715, 715), "so": (342_477, 204_088)}


@EACH
def test_synthetic_data_has_the_real_number_of_clients(task: Task) -> None:
    federation = task.federation("synthetic")
    expected = next(sizes for name, sizes in POPULATION.items() if task.name.startswith(name))
    assert (len(federation.train.ids), len(federation.test.ids)) == expected
    assert federation.source == "synthetic"


@pytest.mark.parametrize("task", [SO_LR, SO_NWP], ids=["so_lr", "so_nwp"])
def test_limit_applies_to_training_sentences_only(task: Task) -> None:
    whole, capped = task.federation("synthetic", limit=0), task.federation("synthetic")
    assert whole.train.sizes.max() > 1000 and capped.train.sizes.max() == 1000
    assert int(whole.train.sizes.sum()) == 135_818_730
    assert int(capped.test.sizes.sum()) == 16_586_035
    client = int(np.flatnonzero(whole.train.sizes > 1000)[0])
    assert np.array_equal(capped.train.client(client)[0], whole.train.client(client)[0][:1000])
    few = task.federation("synthetic", limit=3)
    assert [len(array) for array in few.train.client(client)] == [3] * len(few.train.client(client))
    with pytest.raises(ConfigError) as caught:
        task.federation("synthetic", limit=-1)
    assert caught.value.keys == ("data.limit",)


def test_gather_pads_rows_of_different_lengths() -> None:
    test = SO_LR.federation("synthetic", clients=5).test
    everyone = test.gather(np.arange(int(test.sizes.sum())))
    alone = [test.client(client) for client in range(5)]
    assert len({words.shape[1] for words, _ in alone}) > 1
    start = 0
    for words, tags in alone:
        for whole, part in zip(everyone, (words, tags), strict=True):
            rows = whole[start : start + len(part)]
            assert np.array_equal(rows[:, : part.shape[1]], part) and not rows[:, part.shape[1] :].any()
        start += len(words)


@pytest.mark.parametrize("clients", [-1, 716])
def test_invalid_number_of_clients_is_rejected(clients: int) -> None:
    with pytest.raises(ConfigError) as caught:
        SHAKESPEARE.federation("synthetic", clients=clients)
    assert caught.value.keys == ("data.clients",)


RATE = {"cifar10": {"client.lr": 0.03}, "cifar100": {"client.lr": 0.03, "server.lr": 1.0}}


def run(
    task: Task, settings: Mapping[str, Any], algorithm: str = "fedavg", source: str = "synthetic"
) -> RunResult:
    config = resolve(task, algorithm, settings, source)
    return execute(PreparedRun(config, build_problem(task, config)), Serial())


def example_columns(dataset: str) -> dict[str, Any]:
    """Return the columns of two examples."""
    draw = np.random.default_rng(0)
    texts = {"tokens": [[1, 10_001], [2]], "title": [[3], [4, 5]], "tags": [[0], [499, 2]]}
    return {
        "emnist": {"pixels": draw.integers(0, 256, (2, 28, 28), dtype=np.uint8), "label": np.array([61, 3])},
        "cifar10": {"image": draw.integers(0, 256, (2, 32, 32, 3), np.uint8), "label": np.array([9, 0])},
        "cifar100": {
            "image": draw.integers(0, 256, (2, 32, 32, 3), np.uint8),
            "label": np.array([99, 0]),
            "coarse_label": np.array([19, 0]),
        },
        "shakespeare": {"snippets": text_rows([b"hi", b"x" * 80])},
        "stackoverflow": {name: ragged(rows, np.uint16) for name, rows in texts.items()},
    }[dataset]


def write_task_store(directory: Path, dataset: str, columns: Mapping[str, Any] | None = None) -> str:
    clients = [("a", columns or example_columns(dataset)), ("b", columns or example_columns(dataset))]
    write_store(directory, dataset, [], {"train": clients, "test": clients[:1]})
    return str(directory)


def dataset_name(task: Task) -> str:
    first = task.name.split("_")[0]
    return "stackoverflow" if first == "so" else first


ROWS = {"shakespeare": 3, "other": 2}  # 80 characters are two rows of 81 tokens, and "hi" is one


@EACH
def test_task_trains_on_a_store(task: Task, tmp_path: Path) -> None:
    source = write_task_store(tmp_path / "store", dataset_name(task))
    federation = task.federation(source)
    assert list(federation.train.ids) == ["a", "b"] and list(federation.test.ids) == ["a"]
    assert federation.train.sizes.tolist() == [ROWS.get(task.name, 2)] * 2
    assert federation.source == source
    settings = {"clients_per_round": 1, "rounds": 1, **RATE.get(task.name, {})}
    result = run(task, settings, source=source)
    assert result.train[0]["examples"] == ROWS.get(task.name, 2)
    assert result.value is not None


def test_columns_of_a_store_are_encoded(tmp_path: Path) -> None:
    """Token ids are worked by hand; pixels are k/255; CIFAR-100 uses the fine labels."""

    def prepared(task: Task) -> list[list[Any]]:
        arrays = task.federation(write_task_store(tmp_path / task.name, dataset_name(task))).train.client(1)
        return [part.tolist() for part in task.prepare(tuple(torch.tensor(a) for a in arrays), None)]

    inputs, targets = prepared(SHAKESPEARE)
    assert inputs[0] == [88, 2, 66, 89] + [0] * 76 and targets[0] == [2, 66, 89] + [0] * 77
    assert inputs[1] == [88] + [6] * 79 and targets[1] == [6] * 80
    assert inputs[2] == [89] + [0] * 79 and targets[2] == [0] * 80
    inputs, targets = prepared(SO_NWP)
    assert inputs == [[10_002, 1, 10_001, 10_003] + [0] * 16, [10_002, 2, 10_003] + [0] * 17]
    assert targets == [[1, 10_001, 10_003] + [0] * 17, [2, 10_003] + [0] * 18]
    inputs, targets = prepared(SO_LR)
    assert inputs == [[1, 10_001, 3], [2, 4, 5]]
    assert [[at for at, hot in enumerate(row) if hot] for row in targets] == [[0], [2, 499]]
    assert prepared(CIFAR100)[1] == [99, 0] and prepared(CIFAR10)[1] == [9, 0]
    pixels, labels = prepared(EMNIST_CR)
    assert labels == [61, 3]
    torch.testing.assert_close(
        torch.tensor(pixels) * 255, torch.tensor(example_columns("emnist")["pixels"]).float()
    )
    ink, same = prepared(EMNIST_AE)
    assert ink == same
    torch.testing.assert_close(torch.tensor(ink), 1 - torch.tensor(pixels).flatten(1))


def test_float_pixels_are_used_unchanged(tmp_path: Path) -> None:
    pixels = np.linspace(0, 1, 2 * 784, dtype=np.float32).reshape(2, 28, 28)
    source = write_task_store(tmp_path / "s", "emnist", {"pixels": pixels, "label": np.array([0, 1])})
    arrays = EMNIST_CR.federation(source).train.client(0)
    batch, _ = EMNIST_CR.prepare(tuple(torch.tensor(a) for a in arrays), None)
    assert torch.equal(batch, torch.tensor(pixels))


def test_store_of_another_dataset_is_rejected(tmp_path: Path) -> None:
    source = write_task_store(tmp_path / "s", "shakespeare")
    for task, path in ((EMNIST_CR, source), (SO_LR, str(tmp_path / "nowhere"))):
        with pytest.raises(DataError) as caught:
            task.federation(path)
        assert caught.value.path == Path(path)
