"""Random crops, flips and standardisation of CIFAR images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedopt import rng
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP

TASKS = (CIFAR10, CIFAR100, EMNIST_AE, EMNIST_CR, SHAKESPEARE, SO_LR, SO_NWP)
EACH = pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])


def noise_images(n: int) -> torch.Tensor:
    """Return the same noise image n times. The position of a crop can be identified."""
    noise = np.random.default_rng(3).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    return torch.tensor(noise.repeat(n, axis=0))


def standardised(crop: np.ndarray) -> np.ndarray:
    pixels = crop.astype(np.float64).transpose(2, 0, 1)
    return (pixels - pixels.mean()) / max(pixels.std(), 1 / np.sqrt(1728))


def findrandom_crops(batch: torch.Tensor) -> list[tuple[int, int, bool]]:
    """Return top, left and flip of each crop of `noise_images`."""
    image = noise_images(1)[0].numpy()
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


def test_evaluation_images_are_centre_crops_and_standardised() -> None:
    batch, labels = CIFAR10.prepare((noise_images(2), torch.tensor([1, 2])), None)
    assert batch.shape == (2, 3, 24, 24) and labels.tolist() == [1, 2]
    assert findrandom_crops(batch) == [(4, 4, False)] * 2
    flat = batch.flatten(1).double()
    torch.testing.assert_close(flat.mean(1), torch.zeros(2, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(flat.std(1, correction=0), torch.ones(2, dtype=torch.float64))


def test_constant_image_is_not_divided_by_zero() -> None:
    batch, _ = CIFAR10.prepare((torch.full((1, 32, 32, 3), 200, dtype=torch.uint8), torch.tensor([0])), None)
    assert not batch.any()
    nearly = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    nearly[0, 10, 10, 0] = 1  # its deviation is just below the lower bound 1 / sqrt(1728)
    batch, _ = CIFAR10.prepare((nearly, torch.tensor([0])), None)
    assert float(batch.max()) == pytest.approx((1 - 1 / 1728) * np.sqrt(1728))


def test_training_images_have_their_own_crops_and_flips() -> None:
    draw = rng.generator("crops")
    found = [crop for _ in range(10) for crop in findrandom_crops(random_crops(20, draw, "per_image"))]
    tops, lefts, flips = zip(*found, strict=True)
    assert set(tops) == set(lefts) == set(range(9))  # 32 - 24 + 1 positions along each side
    assert 70 < sum(flips) < 130  # of 200
    assert len(set(zip(tops, lefts, strict=True))) > 60  # of 81
    assert torch.equal(*(random_crops(5, rng.generator("one"), "per_image") for _ in range(2)))


def test_per_batch_images_share_a_crop() -> None:
    draw = rng.generator("batches")
    batches = [findrandom_crops(random_crops(12, draw, "per_batch")) for _ in range(8)]
    assert all(len({crop[:2] for crop in batch}) == 1 for batch in batches)
    assert all(len({crop[2] for crop in batch}) == 2 for batch in batches)  # each image has its own flip
    assert len({batch[0][:2] for batch in batches}) > 4


def random_crops(n: int, draw: np.random.Generator, augment: str) -> torch.Tensor:
    batch, _ = CIFAR10.prepare((noise_images(n), torch.zeros(n, dtype=torch.int64)), draw, augment=augment)
    return batch
