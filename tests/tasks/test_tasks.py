"""All seven tasks from one table: the paper's settings, a round or two of training, data from a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedopt import rng
from fedopt.algorithms import Round
from fedopt.data.store import write_store
from fedopt.data.store.columns import ragged, text_rows
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.serial import Serial
from fedopt.engine.worker import Worker
from fedopt.errors import UserError
from fedopt.models.resnet import ResNet18
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.resolve import resolve
from fedopt.runs.result import RunResult
from fedopt.tasks.base import LogRange, Task
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP

TASKS = (CIFAR10, CIFAR100, EMNIST_AE, EMNIST_CR, SHAKESPEARE, SO_LR, SO_NWP)
EACH = pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])

PARAMETERS = {
    "cifar10": 11_181_642,
    "cifar100": 11_227_812,
    "emnist_ae": 2_837_314,
    "emnist_cr": 1_206_590,
    "shakespeare": 820_522,
    "so_lr": 5_000_500,
    "so_nwp": 4_050_748,
}

# -- settings, typed in from the paper

# The tables of learning rates (client, server for each method), of tau and of performance, row by row.
METHODS = ("fedadagrad", "fedadam", "fedyogi", "fedavgm", "fedavg")
RATES = r"""
cifar10      -\thlf & -1 & -\thlf & -2 & -\thlf & -2 & -\thlf & -\hlf & -\hlf & 0
cifar100     -1 & -1 & -\thlf & 0 & -\thlf & 0 & -\thlf & 0 & -1 & \hlf
emnist_ae    \thlf & -\thlf & 1 & -\thlf & 1 & -\thlf & \hlf & 0 & 1 & 0
emnist_cr    -\thlf & -1 & -\thlf & -\fhlf & -\thlf & -\fhlf & -\thlf & -\hlf & -1 & 0
shakespeare  0 & -\hlf & 0 & -2 & 0 & -2 & 0 & -\hlf & 0 & 0
so_lr        2 & 1 & 2 & -\hlf & 2 & -\hlf & 2 & 0 & 2 & 0
so_nwp       -\hlf & -\thlf & -\hlf & -2 & -\hlf & -2 & -\hlf & 0 & -\hlf & 0
"""
TAUS = """
cifar10      -2 & -3 & -3
cifar100     -2 & -1 & -1
emnist_ae    -3 & -3 & -3
emnist_cr    -2 & -4 & -4
shakespeare  -1 & -3 & -3
so_lr        -2 & -5 & -5
so_nwp       -4 & -5 & -5
"""
PERFORMANCE = """
cifar10      72.1 & 77.4 & 78.0 & 77.4 & 72.8
cifar100     47.9 & 52.5 & 52.4 & 52.4 & 44.7
emnist_cr    85.1 & 85.6 & 85.5 & 85.2 & 84.9
shakespeare  57.5 & 57.0 & 57.2 & 57.3 & 56.9
so_nwp       23.8 & 25.2 & 25.2 & 23.8 & 19.5
so_lr        67.1 & 65.8 & 65.9 & 36.9 & 30.0
emnist_ae    4.20 & 1.01 & 0.98 & 1.65 & 6.47
"""
# batch size, rounds, clients a round, client grid, server grid
SETTINGS = {
    "cifar10": (20, 4000, 10, (-3, 0.5), (-3, 1)),
    "cifar100": (20, 4000, 10, (-3, 0.5), (-3, 1)),
    "emnist_ae": (20, 3000, 10, (-1.5, 2), (-2, 1)),
    "emnist_cr": (20, 1500, 10, (-3, 0.5), (-3, 1)),
    "shakespeare": (4, 1500, 10, (-3, 0.5), (-3, 1)),
    "so_lr": (100, 1500, 10, (-1, 3), (-2, 1.5)),
    "so_nwp": (16, 1500, 50, (-3, 0.5), (-3, 1)),
}
HALVES = {r"\fhlf": "2.5", r"\thlf": "1.5", r"\hlf": "0.5"}


def typed(table: str) -> dict[str, list[float]]:
    for name, value in HALVES.items():
        table = table.replace(name, value)
    rows = (line.split(maxsplit=1) for line in table.strip().splitlines())
    return {name: [float(cell) for cell in cells.split("&")] for name, cells in rows}


@EACH
def test_settings_are_the_papers(task: Task) -> None:
    paper = task.paper
    assert paper is not None
    batch, rounds, clients, client_grid, server_grid = SETTINGS[task.name]
    assert (paper.batch_size, paper.rounds, paper.clients_per_round) == (batch, rounds, clients)
    assert paper.client_grid == LogRange(*client_grid, 0.5)
    assert paper.server_grid == LogRange(*server_grid, 0.5)
    assert paper.tau_grid == LogRange(-5, -1, 1)
    rates, taus = typed(RATES)[task.name], [*typed(TAUS)[task.name], None, None]
    pairs = zip(rates[::2], rates[1::2], taus, strict=True)
    assert dict(zip(METHODS, pairs, strict=True)) == {m: tuple(paper.rates[m]) for m in METHODS}
    assert dict(zip(METHODS, typed(PERFORMANCE)[task.name], strict=True)) == paper.results


def test_headlines_and_reductions_are_the_papers() -> None:
    headline = {task.name: (task.metric, task.better, task.reduction) for task in TASKS}
    accuracy = ("accuracy", "higher", "mean")
    assert headline == {
        **{name: accuracy for name in ("cifar10", "cifar100", "emnist_cr", "shakespeare", "so_nwp")},
        "emnist_ae": ("mse", "lower", "sum"),
        "so_lr": ("recall_at_5", "higher", "sum"),
    }
    assert SO_LR.eval_sample == SO_NWP.eval_sample == 10_000  # "10,000 randomly sampled test examples"
    assert SHAKESPEARE.eval_sample == CIFAR10.eval_sample == CIFAR100.eval_sample == 0  # the whole test set


# -- training


def run(
    task: Task, settings: Mapping[str, Any], algorithm: str = "fedavg", source: str = "synthetic"
) -> RunResult:
    config = resolve(task, algorithm, settings, source)
    return execute(config, build_problem(task, config), Serial())


SHORT = {"data.clients": 2, "clients_per_round": 2, "rounds": 2, "eval.sample": 12, "client.steps": 2}
# One convolution of the ResNet is as much work as all the others' rounds; its rates are for larger batches.
SHORTER = {**SHORT, "data.clients": 1, "clients_per_round": 1, "client.steps": 1, "client.batch_size": 4}
RATE = {"cifar10": {"client.lr": 0.03}, "cifar100": {"client.lr": 0.03, "server.lr": 1.0}}


@EACH
def test_a_task_trains_on_its_synthetic_federation(task: Task) -> None:
    """Two rounds of the same clients: the second begins where the first has led, at a lower loss."""
    settings = {**(SHORTER if task.name in RATE else SHORT), **RATE.get(task.name, {})}
    result = run(task, settings)
    assert result.params == PARAMETERS[task.name]
    first, second = (line["loss"] for line in result.train)
    assert second < first
    assert set(task.metrics) <= set(result.test[-1])
    assert result.value is not None and np.isfinite(result.value)


def test_loss_options_reach_the_gradient() -> None:
    """Most of a short speech's row is padding: left out of the loss, the logged loss is of text alone."""
    settings = {**SHORT, "rounds": 1, "client.steps": 1, "model.units": 8}
    plain, masked = (run(SHAKESPEARE, settings | extra) for extra in ({}, {"loss.masked": True}))
    assert plain.train[0]["loss"] != masked.train[0]["loss"]
    assert plain.x_sha256 != masked.x_sha256


def test_l2_changes_the_gradient_and_not_the_logged_loss() -> None:
    """The objective has 1e-4 times the squares of the kernels, so the gradient has 2e-4 times the kernels."""
    problem = build_problem(CIFAR10, resolve(CIFAR10, "fedavg", {"model.l2": 1e-4}))
    runner = Worker(problem, problem.federation(), ())
    model, x = runner.flat.module, runner.flat.read()
    assert isinstance(model, ResNet18) and model.l2 == 1e-4
    images = (torch.randn(1, 3, 24, 24), torch.tensor([3]))
    gradients, losses = [], []
    for l2 in (1e-4, 0.0):
        model.l2 = l2
        work = ClientWork(runner.problem, runner.flat, (np.zeros(1),), "client", Round(0, 0.1, 1, 1, 1), None)
        gradients.append(work.gradient(x, images))
        losses.append(work.books().loss)
    assert losses[0] == losses[1]
    kernels = torch.cat([torch.full((p.numel(),), p.ndim > 1) for p in runner.flat.parameters])
    added = gradients[0] - gradients[1]
    torch.testing.assert_close(added[kernels], 2e-4 * x[kernels], rtol=0, atol=1e-6)
    assert not added[~kernels].any()  # norms are left alone, and the last bias is zero


@pytest.mark.parametrize("task", [SHAKESPEARE, SO_NWP], ids=["shakespeare", "so_nwp"])
def test_text_tasks_can_be_weighted_by_tokens(task: Task) -> None:
    assert task.tokens is not None
    rows = task.federation("synthetic", clients=1).train.client(0)[0]
    targets = [token for line in rows.tolist() for token in line[1:]]
    assert task.tokens((torch.tensor(rows),)) == sum(token != 0 for token in targets)
    assert resolve(task, "fedavg", {"weighting": "tokens"}).weighting == "tokens"


@pytest.mark.parametrize("task", [CIFAR10, SO_LR], ids=["cifar10", "so_lr"])
def test_other_tasks_have_no_tokens_to_weight_by(task: Task) -> None:
    with pytest.raises(UserError, match="weighting=tokens needs a text task"):
        resolve(task, "fedavg", {"weighting": "tokens"})


@pytest.mark.parametrize(
    ("task", "key", "value", "message"),
    [
        (SO_LR, "data.bag", "printed", "allowed: as_run, as_printed"),
        (CIFAR100, "data.augment", "none", "allowed: per_image, per_batch"),
        (SHAKESPEARE, "loss.masked", "yes", "loss.masked must be of the kind of False"),
        (CIFAR10, "model.l2", "small", "model.l2 must be of the kind of 0.0"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    task: Task, key: str, value: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        resolve(task, "fedavg", {key: value})


# -- clients


@EACH
def test_sizes_are_known_before_a_client_is_read(task: Task) -> None:
    federation = task.federation("synthetic", clients=30)
    for split in (federation.train, federation.test):
        assert len(split.ids) == len(split.sizes) == 30
        for client in (0, 29):
            assert len(split.client(client)[0]) == split.sizes[client]


# As the paper's table of datasets has them: clients in training and test.
POPULATION = {"cifar": (500, 100), "emnist": (3400, 3400), "shakes": (715, 715), "so": (342_477, 204_088)}


@EACH
def test_the_synthetic_federation_is_as_large_as_the_real_one(task: Task) -> None:
    federation = task.federation("synthetic")
    expected = next(sizes for name, sizes in POPULATION.items() if task.name.startswith(name))
    assert (len(federation.train.ids), len(federation.test.ids)) == expected
    assert federation.source == "synthetic"


@pytest.mark.parametrize("task", [SO_LR, SO_NWP], ids=["so_lr", "so_nwp"])
def test_a_user_trains_on_the_first_1000_sentences_and_is_tested_on_all(task: Task) -> None:
    whole, capped = task.federation("synthetic", limit=0), task.federation("synthetic")
    assert whole.train.sizes.max() > 1000 and capped.train.sizes.max() == 1000
    assert int(whole.train.sizes.sum()) == 135_818_730
    assert int(capped.test.sizes.sum()) == 16_586_035
    client = int(np.flatnonzero(whole.train.sizes > 1000)[0])
    assert np.array_equal(capped.train.client(client)[0], whole.train.client(client)[0][:1000])
    few = task.federation("synthetic", limit=3)
    assert [len(array) for array in few.train.client(client)] == [3] * len(few.train.client(client))
    with pytest.raises(UserError, match=r"data\.limit must be 0 \(all sentences\) or more, got -1"):
        task.federation("synthetic", limit=-1)


def test_evaluation_samples_join_users_whose_sentences_differ_in_length() -> None:
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
def test_more_clients_than_there_are_is_refused(clients: int) -> None:
    with pytest.raises(UserError, match=f"data.clients must be 1 to 715, or 0 for all, got {clients}"):
        SHAKESPEARE.federation("synthetic", clients=clients)


# -- stores


def columns_of(dataset: str) -> dict[str, Any]:
    """Two examples in the columns of a store."""
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


def store(directory: Path, dataset: str, columns: Mapping[str, Any] | None = None) -> str:
    clients = [("a", columns or columns_of(dataset)), ("b", columns or columns_of(dataset))]
    write_store(directory, dataset, [], {"train": clients, "test": clients[:1]})
    return str(directory)


def dataset_of(task: Task) -> str:
    """The name of its task, up to the underscore."""
    first = task.name.split("_")[0]
    return "stackoverflow" if first == "so" else first


ROWS = {"shakespeare": 3, "other": 2}  # 80 characters are two rows of 81 tokens, and "hi" is one


@EACH
def test_a_task_trains_on_a_store(task: Task, tmp_path: Path) -> None:
    source = store(tmp_path / "store", dataset_of(task))
    federation = task.federation(source)
    assert list(federation.train.ids) == ["a", "b"] and list(federation.test.ids) == ["a"]
    assert federation.train.sizes.tolist() == [ROWS.get(task.name, 2)] * 2
    assert federation.source == source
    settings = {"clients_per_round": 1, "rounds": 1, **RATE.get(task.name, {})}
    result = run(task, settings, source=source)
    assert result.train[0]["examples"] == ROWS.get(task.name, 2)
    assert result.value is not None


def test_the_examples_of_a_store_are_its_columns_encoded(tmp_path: Path) -> None:
    """Ids as in the tests of encodings; pixels k of 255; CIFAR's labels the fine ones."""

    def prepared(task: Task) -> list[list[Any]]:
        arrays = task.federation(store(tmp_path / task.name, dataset_of(task))).train.client(1)
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
        torch.tensor(pixels) * 255, torch.tensor(columns_of("emnist")["pixels"]).float()
    )
    ink, same = prepared(EMNIST_AE)
    assert ink == same
    torch.testing.assert_close(torch.tensor(ink), 1 - torch.tensor(pixels).flatten(1))


def test_pixels_in_single_precision_are_taken_as_they_are(tmp_path: Path) -> None:
    pixels = np.linspace(0, 1, 2 * 784, dtype=np.float32).reshape(2, 28, 28)
    source = store(tmp_path / "s", "emnist", {"pixels": pixels, "label": np.array([0, 1])})
    arrays = EMNIST_CR.federation(source).train.client(0)
    batch, _ = EMNIST_CR.prepare(tuple(torch.tensor(a) for a in arrays), None)
    assert torch.equal(batch, torch.tensor(pixels))


def test_a_store_of_another_dataset_is_refused(tmp_path: Path) -> None:
    source = store(tmp_path / "s", "shakespeare")
    with pytest.raises(UserError, match="holds shakespeare and the task needs emnist; name another"):
        EMNIST_CR.federation(source)
    with pytest.raises(UserError, match="holds no imported data"):
        SO_LR.federation(str(tmp_path / "nowhere"))


# -- CIFAR's crops


def traceable(n: int) -> torch.Tensor:
    """The same noise n times: a crop of it shows where it was taken."""
    noise = np.random.default_rng(3).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    return torch.tensor(noise.repeat(n, axis=0))


def standardised(crop: np.ndarray) -> np.ndarray:
    pixels = crop.astype(np.float64).transpose(2, 0, 1)
    return (pixels - pixels.mean()) / max(pixels.std(), 1 / np.sqrt(1728))


def places(batch: torch.Tensor) -> list[tuple[int, int, bool]]:
    """Top, left and whether flipped, of crops of `traceable`."""
    image = traceable(1)[0].numpy()
    known = {}
    for top in range(9):
        for left in range(9):
            crop = image[top : top + 24, left : left + 24]
            for flipped, seen in ((False, crop), (True, crop[:, ::-1])):
                known[(top, left, flipped)] = standardised(seen)
    table, keys = np.stack(list(known.values())), list(known)
    distances = [np.abs(table - crop.double().numpy()).max(axis=(1, 2, 3)) for crop in batch]
    assert all(distance.min() < 1e-4 for distance in distances)
    return [keys[int(distance.argmin())] for distance in distances]


def test_test_images_are_cropped_at_the_centre_and_standardised() -> None:
    batch, labels = CIFAR10.prepare((traceable(2), torch.tensor([1, 2])), None)
    assert batch.shape == (2, 3, 24, 24) and labels.tolist() == [1, 2]
    assert places(batch) == [(4, 4, False)] * 2
    flat = batch.flatten(1).double()
    torch.testing.assert_close(flat.mean(1), torch.zeros(2, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(flat.std(1, correction=0), torch.ones(2, dtype=torch.float64))


def test_an_image_of_one_colour_is_not_divided_by_zero() -> None:
    batch, _ = CIFAR10.prepare((torch.full((1, 32, 32, 3), 200, dtype=torch.uint8), torch.tensor([0])), None)
    assert not batch.any()
    nearly = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    nearly[0, 10, 10, 0] = 1  # its deviation is just below 1 / sqrt(1728), the floor
    batch, _ = CIFAR10.prepare((nearly, torch.tensor([0])), None)
    assert float(batch.max()) == pytest.approx((1 - 1 / 1728) * np.sqrt(1728))


def test_training_images_have_their_own_crops_and_flips() -> None:
    draw = rng.generator("crops")
    found = [place for _ in range(10) for place in places(_crops(20, draw, "per_image"))]
    tops, lefts, flips = zip(*found, strict=True)
    assert set(tops) == set(lefts) == set(range(9))  # 32 - 24 + 1 places along each side
    assert 70 < sum(flips) < 130  # of 200
    assert len(set(zip(tops, lefts, strict=True))) > 60  # of 81
    assert torch.equal(*(_crops(5, rng.generator("one"), "per_image") for _ in range(2)))


def test_as_run_in_2020_all_images_of_a_batch_share_a_crop() -> None:
    draw = rng.generator("batches")
    batches = [places(_crops(12, draw, "per_batch")) for _ in range(8)]
    assert all(len({place[:2] for place in batch}) == 1 for batch in batches)
    assert all(len({place[2] for place in batch}) == 2 for batch in batches)  # flips are each image's own
    assert len({batch[0][:2] for batch in batches}) > 4


def _crops(n: int, draw: np.random.Generator, augment: str) -> torch.Tensor:
    batch, _ = CIFAR10.prepare((traceable(n), torch.zeros(n, dtype=torch.int64)), draw, augment=augment)
    return batch
