"""Synthetic EMNIST: sizes as in the real data, legible images, and writers with their own handwriting."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest

from fedopt.data.synthetic import emnist as synthetic_emnist

Array = npt.NDArray[np.float64]


def digest(split: str, writer: int) -> str:
    pixels, labels = synthetic_emnist.examples(split, writer).values()
    return hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()


def pool(split: str, writers: range) -> tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ink (n, 28, 28) from 0 to 1, labels (n,) and positions in `writers` (n,)."""
    drawn = [synthetic_emnist.examples(split, writer).values() for writer in writers]
    ink = np.concatenate([1.0 - pixels / 255.0 for pixels, _ in drawn])
    labels = np.concatenate([labels for _, labels in drawn])
    return ink, labels, np.repeat(np.arange(len(drawn)), [len(labels) for _, labels in drawn])


@pytest.mark.parametrize(
    ("split", "total", "mean", "low"), [("train", 671_585, 197.5, 20), ("test", 77_483, 22.8, 2)]
)
def test_size_statistics_match_the_real_data(split: str, total: int, mean: float, low: int) -> None:
    counts = synthetic_emnist.sizes(split)
    assert counts.shape == (3400,) and counts.dtype == np.int64
    assert counts.sum() == total
    assert abs(counts.mean() - mean) < 0.05
    assert low <= counts.min() <= 2 * low


def test_size_distribution_matches_the_real_data() -> None:
    train, test = synthetic_emnist.sizes("train"), synthetic_emnist.sizes("test")
    assert train.max() == 418
    assert abs(train.std() - 77) < 3
    assert np.mean((train - train.mean()) ** 3) > 0  # skewed to the right
    assert np.corrcoef(train, test)[0, 1] > 0.99


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("writer", [0, 1234, 3399])
def test_columns_have_the_documented_types_and_sizes(split: str, writer: int) -> None:
    pixels, labels = synthetic_emnist.examples(split, writer).values()
    n = synthetic_emnist.sizes(split)[writer]
    assert pixels.shape == (n, 28, 28) and pixels.dtype == np.uint8
    assert labels.shape == (n,) and labels.dtype == np.int64
    assert labels.min() >= 0 and labels.max() <= 61
    assert (pixels.min(axis=(1, 2)) < 128).all()  # every image has ink
    assert (pixels == 255).mean() > 0.5  # on white paper


def test_ink_is_centred_and_covers_as_much_as_in_the_real_data() -> None:
    ink, _, _ = pool("train", range(0, 3400, 170))
    assert 0.14 < ink.mean() < 0.20
    corners = np.stack([ink[:, i, j] for i in (0, 27) for j in (0, 27)])
    assert corners.mean() < 0.01
    rows, columns = np.indices((28, 28))
    assert abs((ink * rows).sum() / ink.sum() - 13.5) < 0.5
    assert abs((ink * columns).sum() / ink.sum() - 13.5) < 0.5


def test_ink_does_not_cross_the_edge() -> None:
    """The outermost pixels are never darker than their inner neighbours.

    Pixels are blurred as one line, so ink at the end of a row would reach the next row.
    """
    ink, _, _ = pool("train", range(50, 70))
    for turned in (ink, ink.transpose(0, 2, 1)):
        assert (turned[:, 0] <= turned[:, 1]).all()
        assert (turned[:, -1] <= turned[:, -2]).all()


def test_all_characters_occur_and_half_are_digits() -> None:
    _, labels, _ = pool("train", range(0, 3400, 50))
    assert set(labels.tolist()) == set(range(62))
    assert abs((labels < 10).mean() - 0.5) < 0.05


def test_batch_size_does_not_change_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("train", 5)
    monkeypatch.setattr(synthetic_emnist, "BATCH", 7)
    assert digest("train", 5) == before


def test_splits_and_writers_differ() -> None:
    train, test = (synthetic_emnist.examples(split, 3)["pixels"] for split in ("train", "test"))
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    assert digest("train", 3) != digest("train", 4)


def slant(ink: Array) -> Array:
    """Return the slant of each image to the right, (n,), from its second moments."""
    grid = np.arange(28.0)
    mass = ink.sum(axis=(1, 2))[:, None]
    y = grid - (ink.sum(axis=2) @ grid)[:, None] / mass
    x = grid - (ink.sum(axis=1) @ grid)[:, None] / mass
    lean: Array = -np.einsum("nij,ni,nj->n", ink, y, x) / np.einsum("nij,ni,ni->n", ink, y, y)
    return lean


@pytest.mark.parametrize("trait", ["slant", "darkness"])
def test_handwriting_differs_more_between_writers_than_within_one(trait: str) -> None:
    ink, labels, writers = pool("train", range(0, 3400, 85))
    ink, labels, writers = ink[labels < 10], labels[labels < 10], writers[labels < 10]
    value = slant(ink) if trait == "slant" else ink.mean(axis=(1, 2))
    value = value - (np.bincount(labels, value) / np.bincount(labels))[labels]  # minus the mean of the digit
    mean = np.bincount(writers, value) / np.bincount(writers)
    assert mean.var() > 1.0 * np.mean((value - mean[writers]) ** 2)


def test_handwriting_is_the_same_in_both_splits() -> None:
    """The mean slant of the train images predicts that of the test images."""
    both = []
    for split in ("train", "test"):
        ink, _, writers = pool(split, range(0, 3400, 85))
        both.append(np.bincount(writers, slant(ink)) / np.bincount(writers))
    assert np.corrcoef(both[0], both[1])[0, 1] > 0.8


def test_linear_classifier_recognises_writers() -> None:
    """Ridge regression from pixels to 8 writers; chance is 1/8."""
    train, _, who = pool("train", range(8))
    test, _, truth = pool("test", range(8))
    a, b = train.reshape(-1, 784), test.reshape(-1, 784)
    centre = a.mean(axis=0)
    a, b = a - centre, b - centre
    weights = np.linalg.solve(a.T @ a + 30.0 * np.eye(784), a.T @ np.eye(8)[who])
    guess = (b @ weights + np.bincount(who) / len(who)).argmax(axis=1)
    assert (guess == truth).mean() > 0.4
