"""Synthetic CIFAR: columns, label skew as in the paper, and learnable shapes."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from fedopt.data.synthetic import cifar as synthetic_cifar

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


@pytest.mark.parametrize("split", ["train", "test"])
def test_columns_are_those_of_imported_data(split: str) -> None:
    hundred, ten = (synthetic_cifar.examples(split, 99, classes) for classes in (100, 10))
    assert sorted(hundred) == ["coarse_label", "image", "label"] and sorted(ten) == ["image", "label"]
    for columns, classes in ((hundred, 100), (ten, 10)):
        assert columns["image"].shape == (100, 32, 32, 3) and columns["image"].dtype == np.uint8
        assert columns["label"].shape == (100,) and columns["label"].dtype == np.int64
        assert 0 <= columns["label"].min() and columns["label"].max() < classes
    assert hundred["coarse_label"].dtype == np.int64
    assert (hundred["coarse_label"] == hundred["label"] // 5).all()


def test_splits_clients_and_versions_differ() -> None:
    keys = [
        (split, client, classes) for split in ("train", "test") for client in (0, 1) for classes in (10, 100)
    ]
    assert len({digest(*key) for key in keys}) == len(keys)


def test_cifar100_labels_are_skewed_as_by_pachinko_allocation() -> None:
    """As in the paper, most clients have 20 to 30 labels. Fine labels of a coarse label occur together."""
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


def test_cifar10_labels_are_skewed_as_by_a_dirichlet_distribution() -> None:
    unique = unique_labels(10)
    assert 3 <= np.median(unique) <= 5
    labels = pool("train", 10, 150)[1]
    assert set(labels.tolist()) == set(range(10))
    largest = [np.bincount(part).max() for part in labels.reshape(150, 100)]
    assert np.median(largest) > 55  # of 100 images


def test_images_use_the_range_of_values_without_saturation() -> None:
    image, _ = pool("train", 100, 150)
    assert 100 < image.mean() < 155 and image.std() > 40
    assert (image == 0).mean() < 0.05 and (image == 255).mean() < 0.12


def gray(image: npt.NDArray[np.uint8]) -> Floats:
    """Return the standardised brightness of the central crop, (n, 24 * 24)."""
    light = image[:, 4:28, 4:28].mean(axis=3).reshape(len(image), -1)
    return (light - light.mean(axis=1, keepdims=True)) / light.std(axis=1, keepdims=True)


def colours(image: npt.NDArray[np.uint8]) -> Floats:
    """Return the square roots of a histogram of 512 colours, (n, 512)."""
    step = (image[:, 4:28, 4:28] // 32).astype(np.int64) @ np.array([64, 8, 1])
    return np.stack([np.bincount(one.ravel(), minlength=512) for one in step]) ** 0.5


def ridge_accuracy(train: Floats, labels: Ints, test: Floats, truth: Ints, classes: int) -> float:
    """Test accuracy of one-against-rest ridge regression."""
    train, test = (np.append(a, np.ones((len(a), 1)), axis=1) for a in (train, test))
    weights = np.linalg.solve(
        train.T @ train + 30.0 * np.eye(train.shape[1]), train.T @ np.eye(classes)[labels]
    )
    return float(np.mean((test @ weights).argmax(axis=1) == truth))


def test_colours_predict_the_coarse_label_partly() -> None:
    image, label = pool("train", 100, 60)
    held, truth = pool("test", 100, 20)
    accuracy = ridge_accuracy(colours(image), label // 5, colours(held), truth // 5, 20)
    assert 0.2 < accuracy < 0.8  # chance is 0.05


def test_linear_model_of_pixels_is_near_chance() -> None:
    """The shapes cannot be recognised from single pixels."""
    image, label = pool("train", 100, 60)
    held, truth = pool("test", 100, 20)
    accuracy = ridge_accuracy(gray(image), label, gray(held), truth, 100)
    assert accuracy < 0.15


def tensor(image: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Standardise each image: (n, 24, 24, 3) -> (n, 3, 24, 24)."""
    pixels = torch.from_numpy(image.astype(np.float32)).permute(0, 3, 1, 2)
    mean, deviation = pixels.mean((1, 2, 3), keepdim=True), pixels.std((1, 2, 3), keepdim=True)
    return (pixels - mean) / deviation


def test_small_network_distinguishes_two_shapes_under_crops_and_flips() -> None:
    draw = np.random.default_rng(0)
    labels = np.tile(
        [37, 39], 500
    )  # four and six lobes, without a hole, with the background of coarse label 7
    image, truth = (
        synthetic_cifar._draw_images(labels, draw),
        torch.from_numpy((labels == 39).astype(np.int64)),
    )
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
