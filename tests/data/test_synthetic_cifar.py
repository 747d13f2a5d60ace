"""The synthetic images: real sizes, the same everywhere, label skew as in the paper, and looks to learn."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from fedopt.data.synthetic import cifar as synthetic_cifar
from fedopt.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def digest(split: str, client: int | np.int64, classes: int) -> str:
    columns = synthetic_cifar.examples(split, client, classes)  # type: ignore[arg-type]
    return hashlib.sha256(b"".join(columns[name].tobytes() for name in sorted(columns))).hexdigest()


@cache
def pool(split: str, classes: int, clients: int) -> tuple[npt.NDArray[np.uint8], Ints]:
    drawn = [synthetic_cifar.examples(split, client, classes) for client in range(clients)]
    return np.concatenate([d["image"] for d in drawn]), np.concatenate([d["label"] for d in drawn])


def unique_labels(classes: int) -> Ints:
    return np.array(
        [len(set(labels)) for labels in pool("train", classes, 150)[1].reshape(150, 100).tolist()]
    )


@pytest.mark.parametrize(("split", "clients", "total"), [("train", 500, 50_000), ("test", 100, 10_000)])
def test_sizes_and_ids_are_those_of_the_papers_table(split: str, clients: int, total: int) -> None:
    counts = synthetic_cifar.sizes(split)
    assert counts.dtype == np.int64 and counts.tolist() == [100] * clients
    assert synthetic_cifar.CLIENTS[split] == clients and synthetic_cifar.EXAMPLES[split] == total
    names = synthetic_cifar.ids(split)
    assert len(set(names)) == clients and names == sorted(names)


@pytest.mark.parametrize("split", ["train", "test"])
def test_columns_are_those_of_the_imported_sets(split: str) -> None:
    hundred, ten = (synthetic_cifar.examples(split, 99, classes) for classes in (100, 10))
    assert sorted(hundred) == ["coarse_label", "image", "label"] and sorted(ten) == ["image", "label"]
    for columns, classes in ((hundred, 100), (ten, 10)):
        assert columns["image"].shape == (100, 32, 32, 3) and columns["image"].dtype == np.uint8
        assert columns["label"].shape == (100,) and columns["label"].dtype == np.int64
        assert 0 <= columns["label"].min() and columns["label"].max() < classes
    assert hundred["coarse_label"].dtype == np.int64
    assert (hundred["coarse_label"] == hundred["label"] // 5).all()


@pytest.mark.parametrize("classes", [10, 100])
def test_a_client_is_the_same_in_every_process(classes: int) -> None:
    program = (
        "import hashlib; from fedopt.data.synthetic import cifar as m; "
        f"e = m.examples('test', 42, {classes}); "
        "print(hashlib.sha256(b''.join(e[k].tobytes() for k in sorted(e))).hexdigest())"
    )
    here = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4321"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest("test", 42, classes) == digest("test", np.int64(42), classes)


def test_splits_clients_and_sets_differ() -> None:
    keys = [
        (split, client, classes) for split in ("train", "test") for client in (0, 1) for classes in (10, 100)
    ]
    assert len({digest(*key) for key in keys}) == len(keys)


def test_a_hundred_labels_are_skewed_as_pachinko_allocation_does() -> None:
    """Most clients have 20 to 30 labels (the paper), and fine labels of one coarse label come together."""
    unique = unique_labels(100)
    assert 20 <= np.median(unique) <= 25
    assert np.mean((20 <= unique) & (unique <= 30)) > 0.5 and unique.max() > 32
    counts = np.stack(
        [np.bincount(labels, minlength=100) for labels in pool("train", 100, 150)[1].reshape(150, 100)]
    )
    correlation = np.corrcoef(counts.T)
    family = np.arange(100) // 5
    sisters = (family[:, None] == family) & ~np.eye(100, dtype=bool)
    assert correlation[sisters].mean() > 0.5
    assert abs(correlation[family[:, None] != family].mean()) < 0.1


def test_ten_labels_are_skewed_as_a_dirichlet_draw_with_a_tenth() -> None:
    unique = unique_labels(10)
    assert 3 <= np.median(unique) <= 5
    labels = pool("train", 10, 150)[1]
    assert set(labels.tolist()) == set(range(10))
    largest = [np.bincount(part).max() for part in labels.reshape(150, 100)]
    assert np.median(largest) > 55  # of 100 images


def test_images_use_the_whole_range_and_are_not_saturated() -> None:
    image, _ = pool("train", 100, 150)
    assert 100 < image.mean() < 155 and image.std() > 40
    assert (image == 0).mean() < 0.05 and (image == 255).mean() < 0.12


def gray(image: npt.NDArray[np.uint8]) -> Floats:
    """Light of the central crop, standardised as in the task, (n, 24 * 24)."""
    light = image[:, 4:28, 4:28].mean(axis=3).reshape(len(image), -1)
    return (light - light.mean(axis=1, keepdims=True)) / light.std(axis=1, keepdims=True)


def colours(image: npt.NDArray[np.uint8]) -> Floats:
    """How many pixels have each of 512 colours, (n, 512)."""
    step = (image[:, 4:28, 4:28] // 32).astype(np.int64) @ np.array([64, 8, 1])
    return np.stack([np.bincount(one.ravel(), minlength=512) for one in step]) ** 0.5


def ridge_accuracy(train: Floats, labels: Ints, test: Floats, truth: Ints, classes: int) -> float:
    """One-against-rest least squares with a ridge."""
    train, test = (np.append(a, np.ones((len(a), 1)), axis=1) for a in (train, test))
    weights = np.linalg.solve(
        train.T @ train + 30.0 * np.eye(train.shape[1]), train.T @ np.eye(classes)[labels]
    )
    return float(np.mean((test @ weights).argmax(axis=1) == truth))


def test_coarse_labels_show_in_the_colours_but_not_surely() -> None:
    image, label = pool("train", 100, 60)
    held, truth = pool("test", 100, 20)
    accuracy = ridge_accuracy(colours(image), label // 5, colours(held), truth // 5, 20)
    assert 0.2 < accuracy < 0.8  # chance is 0.05


def test_shapes_do_not_show_in_single_pixels() -> None:
    """A linear model of the light is near chance, so a network has something to do."""
    image, label = pool("train", 100, 60)
    held, truth = pool("test", 100, 20)
    accuracy = ridge_accuracy(gray(image), label, gray(held), truth, 100)
    assert accuracy < 0.15


def tensor(image: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Images (n, 24, 24, 3) standardised one by one, (n, 3, 24, 24)."""
    pixels = torch.from_numpy(image.astype(np.float32)).permute(0, 3, 1, 2)
    mean, deviation = pixels.mean((1, 2, 3), keepdim=True), pixels.std((1, 2, 3), keepdim=True)
    return (pixels - mean) / deviation


def test_a_small_network_tells_two_shapes_on_one_ground_apart_under_crops_and_flips() -> None:
    draw = np.random.default_rng(0)
    labels = np.tile([37, 39], 500)  # four lobes and six, without a hole, on the ground of coarse label 7
    image, truth = synthetic_cifar._draw(labels, draw), torch.from_numpy((labels == 39).astype(np.int64))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 2)),
        )
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for step in range(100):
        (top, left), rows = draw.integers(0, 9, 2), draw.integers(0, 800, 50)
        batch = image[rows, top : top + 24, left : left + 24]
        loss = nn.functional.cross_entropy(
            network(tensor(batch[:, :, :: 1 - 2 * (step % 2)].copy())), truth[rows]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = network(tensor(image[800:, 4:28, 4:28])).argmax(1)
    hits = float((found == truth[800:]).float().mean())
    assert hits > 0.8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: synthetic_cifar.sizes("dev"), "unknown split 'dev'; allowed: train, test"),
        (lambda: synthetic_cifar.examples("test", 100), "no client 100 in test; they are numbered 0 to 99"),
        (lambda: synthetic_cifar.examples("test", -1), "no client -1"),
        (lambda: synthetic_cifar.examples("test", 0, 20), "no CIFAR-20; allowed: 10, 100"),
    ],
)
def test_a_mistake_is_explained(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        call()
