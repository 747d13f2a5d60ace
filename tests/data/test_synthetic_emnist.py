"""The synthetic writers: exact totals, the same images everywhere, and hands that really differ."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest

from fedopt.data.synthetic import emnist as synthetic_emnist
from fedopt.data.synthetic import glyphs
from fedopt.errors import UserError

Array = npt.NDArray[np.float64]


def digest(split: str, writer: int) -> str:
    pixels, labels = synthetic_emnist.examples(split, writer)
    return hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()


def pool(split: str, writers: range) -> tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ink (n, 28, 28) from 0 to 1, labels (n,) and positions in `writers` (n,) of several writers."""
    drawn = [synthetic_emnist.examples(split, writer) for writer in writers]
    ink = np.concatenate([1.0 - pixels / 255.0 for pixels, _ in drawn])
    labels = np.concatenate([labels for _, labels in drawn])
    return ink, labels, np.repeat(np.arange(len(drawn)), [len(labels) for _, labels in drawn])


@pytest.mark.parametrize(
    ("split", "total", "mean", "low"), [("train", 671_585, 197.5, 20), ("test", 77_483, 22.8, 2)]
)
def test_sizes_sum_to_the_totals_of_the_real_set(split: str, total: int, mean: float, low: int) -> None:
    counts = synthetic_emnist.sizes(split)
    assert counts.shape == (3400,) and counts.dtype == np.int64
    assert counts.sum() == total
    assert abs(counts.mean() - mean) < 0.05
    assert low <= counts.min() <= 2 * low


def test_sizes_are_spread_like_the_real_ones() -> None:
    train, test = synthetic_emnist.sizes("train"), synthetic_emnist.sizes("test")
    assert train.max() == 418
    assert abs(train.std() - 77) < 3
    assert np.mean((train - train.mean()) ** 3) > 0  # skewed to the right
    assert np.corrcoef(train, test)[0, 1] > 0.99


def test_sizes_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        synthetic_emnist.sizes("train")[0] = 0


def test_ids_are_sorted_and_different() -> None:
    names = synthetic_emnist.ids()
    assert len(set(names)) == 3400
    assert names == sorted(names)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("writer", [0, 1234, 3399])
def test_examples_have_the_stated_types_and_sizes(split: str, writer: int) -> None:
    pixels, labels = synthetic_emnist.examples(split, writer)
    n = synthetic_emnist.sizes(split)[writer]
    assert pixels.shape == (n, 28, 28) and pixels.dtype == np.uint8
    assert labels.shape == (n,) and labels.dtype == np.int64
    assert labels.min() >= 0 and labels.max() <= 61
    assert (pixels.min(axis=(1, 2)) < 128).all()  # every image has ink
    assert (pixels == 255).mean() > 0.5  # on white paper


def test_ink_is_in_the_middle_and_covers_what_it_does_in_the_real_set() -> None:
    ink, _, _ = pool("train", range(0, 3400, 170))
    assert 0.14 < ink.mean() < 0.20
    corners = np.stack([ink[:, i, j] for i in (0, 27) for j in (0, 27)])
    assert corners.mean() < 0.01
    rows, columns = np.indices((28, 28))
    assert abs((ink * rows).sum() / ink.sum() - 13.5) < 0.5
    assert abs((ink * columns).sum() / ink.sum() - 13.5) < 0.5


def test_no_ink_runs_over_the_edge() -> None:
    """The pen stays inside, so the outermost pixels are never darker than their inner neighbours.

    Pixels are blurred as one long line; ink that wrapped around to the next row would break this.
    """
    ink, _, _ = pool("train", range(50, 70))
    for turned in (ink, ink.transpose(0, 2, 1)):
        assert (turned[:, 0] <= turned[:, 1]).all()
        assert (turned[:, -1] <= turned[:, -2]).all()


def test_all_characters_occur_and_digits_are_half() -> None:
    _, labels, _ = pool("train", range(0, 3400, 50))
    assert set(labels.tolist()) == set(range(62))
    assert abs((labels < 10).mean() - 0.5) < 0.05


def test_the_same_writer_twice_is_the_same() -> None:
    assert digest("train", 17) == digest("train", 17)


def test_a_fresh_process_draws_the_same() -> None:
    program = (
        "import hashlib; from fedopt.data.synthetic import emnist as s; p, y = s.examples('test', 2718); "
        "print(hashlib.sha256(p.tobytes() + y.tobytes()).hexdigest())"
    )
    here = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4321"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == digest("test", 2718)


def test_drawing_in_batches_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("train", 5)
    monkeypatch.setattr(synthetic_emnist, "BATCH", 7)
    assert digest("train", 5) == before


def test_train_differs_from_test_and_writers_from_each_other() -> None:
    train, test = synthetic_emnist.examples("train", 3)[0], synthetic_emnist.examples("test", 3)[0]
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    assert digest("train", 3) != digest("train", 4)


def slant(ink: Array) -> Array:
    """How far each image leans to the right per unit of height, (n,), from its second moments."""
    grid = np.arange(28.0)
    mass = ink.sum(axis=(1, 2))[:, None]
    y = grid - (ink.sum(axis=2) @ grid)[:, None] / mass
    x = grid - (ink.sum(axis=1) @ grid)[:, None] / mass
    lean: Array = -np.einsum("nij,ni,nj->n", ink, y, x) / np.einsum("nij,ni,ni->n", ink, y, y)
    return lean


@pytest.mark.parametrize("trait", ["slant", "darkness"])
def test_hands_differ_more_between_writers_than_within_one(trait: str) -> None:
    ink, labels, writers = pool("train", range(0, 3400, 85))
    ink, labels, writers = ink[labels < 10], labels[labels < 10], writers[labels < 10]
    value = slant(ink) if trait == "slant" else ink.mean(axis=(1, 2))
    value = value - (np.bincount(labels, value) / np.bincount(labels))[labels]  # the digit itself leans, too
    mean = np.bincount(writers, value) / np.bincount(writers)
    assert mean.var() > 1.0 * np.mean((value - mean[writers]) ** 2)


def test_a_writers_hand_is_the_same_in_train_and_test() -> None:
    """The mean slant of a writer's training images predicts that of the test images."""
    both = []
    for split in ("train", "test"):
        ink, _, writers = pool(split, range(0, 3400, 85))
        both.append(np.bincount(writers, slant(ink)) / np.bincount(writers))
    assert np.corrcoef(both[0], both[1])[0, 1] > 0.8


def test_a_linear_classifier_tells_writers_apart() -> None:
    """Ridge regression from pixels to 8 writers: chance is 1 in 8, and the test images are new."""
    train, _, who = pool("train", range(8))
    test, _, truth = pool("test", range(8))
    a, b = train.reshape(-1, 784), test.reshape(-1, 784)
    centre = a.mean(axis=0)
    a, b = a - centre, b - centre
    weights = np.linalg.solve(a.T @ a + 30.0 * np.eye(784), a.T @ np.eye(8)[who])
    guess = (b @ weights + np.bincount(who) / len(who)).argmax(axis=1)
    assert (guess == truth).mean() > 0.4


def test_wrong_arguments_get_a_sentence() -> None:
    with pytest.raises(UserError, match="did you mean 'train'"):
        synthetic_emnist.examples("trian", 0)
    for writer in (-1, 3400):
        with pytest.raises(UserError, match="0 to 3399"):
            synthetic_emnist.examples("train", writer)


def test_copybook_has_the_62_characters_in_the_order_of_the_labels() -> None:
    assert glyphs.CHARACTERS == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert set(glyphs.GLYPHS) == set(glyphs.CHARACTERS)


def test_paths_have_the_lengths_of_their_figures() -> None:
    bar, bar_length = glyphs.sample(glyphs.path("50,0 50,100"), 4)
    np.testing.assert_allclose(bar, [[0, -0.375], [0, -0.125], [0, 0.125], [0, 0.375]], atol=1e-12)
    assert bar_length == pytest.approx(1.0)
    _, corner_length = glyphs.sample(glyphs.path("0,0 0,100 | 100,100"), 50)
    assert corner_length == pytest.approx(2.0)
    _, two_bars = glyphs.sample(glyphs.path("0,0 0,100 ; 100,0 100,100"), 50)
    assert two_bars == pytest.approx(2.0)  # the jump between the strokes leaves no ink
    circle, circle_length = glyphs.sample(glyphs.path("50,0 0,50 50,100 100,50 50,0"), 60)
    assert circle_length == pytest.approx(np.pi, rel=0.02)
    np.testing.assert_allclose(np.hypot(*circle.T), 0.5, atol=0.02)
