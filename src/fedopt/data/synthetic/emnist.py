"""A synthetic twin of federated EMNIST-62: 3,400 writers, each with an own hand, drawn from code.

It needs no download, so a run, a test or a comparison of algorithms can start anywhere, and it keeps what
makes the real set federated: as many writers and examples, a mix of characters of each writer's own, and
hands that differ more between writers than the images of one writer do. Pixels follow the real files:
white paper is 255 and ink is dark. Labels are 0-9, then A-Z, then a-z.

An image is a row of points along the pen's path (`glyphs`), moved by one linear map of fixed features of
the path, dropped on the pixel grid and blurred to the width of a pen. All images of a writer are drawn by
the same few array operations; these only add and multiply, so the result does not depend on a library
that orders its sums freely.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.synthetic import glyphs
from fedopt.errors import UserError, unknown

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

N_WRITERS = 3400
TRAIN_EXAMPLES = 671_585
TEST_EXAMPLES = 77_483

SIDE = 28  # pixels
POINTS = 112  # per glyph: at most 0.8 pixels apart on the longest path
BATCH = 50  # images drawn together: few enough that their arrays stay in the processor's cache
REACH = 22.0  # pixels that the pen's path may span, so that its ink stays on the paper
SMALL = 0.86  # height of a letter like 'o' against 'O'
FEATURES = 10  # 1, u, v: place and affine map; u v, u u, v v: bending; the rest: waves along the path
AMPLITUDE = np.array([0, 1, 1, 1, 1, 1, 1, 1, 0.7, 0.7], dtype=np.float32)
OWN_BEND, EACH_BEND, IMAGE_BEND = 0.02, 0.04, 0.025  # of the writer, of its glyphs, of an image
JITTER = 7  # further differences between images: slant, turn, size, width, right, down, darkness
MIX = 2.0  # evenness of the writers' mixes: the mean weight of a character in the Dirichlet draw

# How often a character is written, in the order of the labels: digits are half of everything, and the
# letters follow the real set, where a few (O, S, e, t) are common and most are rare.
FREQUENCY = np.array(
    [40.0] * 10
    + [7, 4, 11, 5, 5, 10, 3, 4, 13, 4, 3, 6, 10, 9, 28, 9, 3, 5, 23, 11, 14, 5, 5, 3, 5, 3]
    + [11, 6, 3, 12, 28, 3, 4, 10, 3, 2, 3, 17, 3, 13, 3, 3, 4, 16, 3, 21, 3, 3, 3, 3, 3, 3]
)


@cache
def sizes(split: str) -> Ints:
    """Examples of every writer in `split`, int64 (3400,): many wrote once, some twice, as in the real set."""
    if split == "train":
        draw = rng.generator("synthetic_emnist", "sizes")
        group = draw.choice(3, N_WRITERS, p=[0.66, 0.30, 0.04])
        usual, twice = draw.normal(155, 28, N_WRITERS), draw.normal(300, 48, N_WRITERS)
        wish = np.choose(group, [usual, twice, draw.uniform(20, 150, N_WRITERS)])
        counts = _exact(wish, TRAIN_EXAMPLES, 20, 418)
    elif split == "test":
        counts = _exact(sizes("train") * (TEST_EXAMPLES / TRAIN_EXAMPLES), TEST_EXAMPLES, 2, 60)
    else:
        raise unknown("split", split, ["train", "test"])
    counts.setflags(write=False)  # every caller is given the same cached array
    return counts


def ids() -> list[str]:
    """The 3400 writers' names in sorted order; the position in the list is the writer's number."""
    return [f"writer{number:04d}" for number in range(N_WRITERS)]


def examples(split: str, writer: int) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Images uint8 (n, 28, 28) and labels int64 (n,) of one writer, a function of the arguments alone."""
    counts = sizes(split)
    if not 0 <= writer < N_WRITERS:
        raise UserError(f"there is no writer {writer}; writers are numbered 0 to {N_WRITERS - 1}")
    hand, n = _hand(writer), int(counts[writer])
    draw = rng.generator("synthetic_emnist", split, writer)
    labels = np.searchsorted(hand.mix, draw.random(n), side="right")
    noise = draw.standard_normal((n, 2 * FEATURES + JITTER), dtype=np.float32).clip(-2.5, 2.5)
    starts = range(0, n, BATCH)
    parts = [_draw(hand, labels[i : i + BATCH], noise[i : i + BATCH]) for i in starts]
    return np.concatenate(parts), labels


class Hand(NamedTuple):
    """What stays the same in everything that a writer writes."""

    mix: npt.NDArray[np.float64]  # (62,) cumulative shares of the characters
    rows: Ints  # (62,) which way of writing each character
    bend: Floats  # (62, 2, FEATURES) how each glyph departs from the copybook
    slant: float  # shift to the right per unit of height
    turn: float  # radians
    width: float
    size: float  # pixels of the longer side
    baseline: float  # pixels below the middle
    pen: float  # blur of the pen, the outer weight of a three-point average
    pressure: float  # darkness
    care: float  # the writer's own multiple of the difference between two images
    swell: Floats  # (2,) how the pressure changes along the path


def _hand(writer: int) -> Hand:
    """The hand of a writer, from the writer's number alone, so that train and test share it."""
    draw = rng.generator("synthetic_emnist", "hand", writer)
    shares = draw.gamma(MIX * FREQUENCY / FREQUENCY.mean())
    forms = _forms()
    own, each = draw.standard_normal((1, 2, FEATURES)), draw.standard_normal((62, 2, FEATURES))
    return Hand(
        mix=np.append(np.cumsum(shares)[:-1] / shares.sum(), 1.0),
        rows=forms.first + (forms.ways * draw.random(62)).astype(np.int64),
        bend=((OWN_BEND * own + EACH_BEND * each) * AMPLITUDE).astype(np.float32),
        slant=_bounded(draw, 0.12, 0.17),
        turn=_bounded(draw, 0.0, 0.07),
        width=_bounded(draw, 0.95, 0.11),
        size=_bounded(draw, 18.7, 1.1),
        baseline=_bounded(draw, 0.0, 0.5),
        pen=_bounded(draw, 0.23, 0.025),
        pressure=_bounded(draw, 3.3, 0.6),
        care=_bounded(draw, 1.0, 0.2),
        swell=draw.normal(0.0, 0.12, 2).astype(np.float32),
    )


def _draw(hand: Hand, labels: Ints, noise: Floats) -> npt.NDArray[np.uint8]:
    """Draw one image per label, (n, 28, 28); `noise` (n, 27) holds the small differences between images."""
    forms = _forms()
    rows = hand.rows[labels]
    features = forms.features[rows]
    noise = hand.care * noise
    wobble = noise[:, :-JITTER].reshape(-1, 2, FEATURES)
    jitter = noise[:, -JITTER:].T[:, :, None]

    # The shape of the path: the copybook's u and v, and departures of the writer and of this image.
    bend = hand.bend[labels] + IMAGE_BEND * AMPLITUDE * wobble
    bend[:, 0, 1] += 1.0
    bend[:, 1, 2] += 1.0

    # The hand's slant, width and turn, applied to the weights of the features and not to every point.
    slant = hand.slant + 0.05 * jitter[0]
    turn = hand.turn + 0.04 * jitter[1]
    size = hand.size * (1.0 + 0.03 * jitter[2])
    width = size * hand.width * (1.0 + 0.05 * jitter[3])
    right, down = width * (bend[:, 0] - slant * bend[:, 1]), size * bend[:, 1]
    x = _combine(right - turn * down, features)
    y = _combine(turn * right + down, features)
    x = _place(x, 0.4 * jitter[4])
    y = _place(y, 0.4 * jitter[5] + hand.baseline)

    # Every point leaves ink in proportion to the path that it stands for.
    ink = forms.length[rows, None] * size * (hand.pressure / POINTS) * (1.0 + 0.08 * jitter[6])
    swell = hand.swell[0] * features[:, 6] + hand.swell[1] * features[:, 7]
    paper = _blur(_splat(x, y, ink * (1.0 + swell)), hand.pen)
    white = 1.0 - np.minimum(paper, 1.0)
    return np.rint(255.0 * white).astype(np.uint8).reshape(-1, SIDE, SIDE)


class Forms(NamedTuple):
    """The copybook: `glyphs.Table` made ready for `_draw`."""

    first: Ints  # (62,)
    ways: Ints  # (62,)
    features: Floats  # (rows, FEATURES, POINTS)
    length: Floats  # (rows,)


@cache
def _forms() -> Forms:
    """The features of every glyph; a path is their weighted sum, so bending it costs one pass."""
    table = glyphs.table(POINTS)
    small = [character in "acenorsuvwxz" for character in glyphs.CHARACTERS]
    scale = np.where(np.repeat(small, table.ways), SMALL, 1.0)
    u, v = np.moveaxis(table.points * scale[:, None, None], 2, 0)
    # Waves in proportion to the path, so that a short stroke stays a straight one.
    once = 2 * np.pi * (np.arange(POINTS) + 0.5) / POINTS
    calm = np.minimum(table.length * scale / 2.5, 1.0)[:, None]
    features = [np.ones_like(u), u, v, 4 * u * v, 4 * u * u, 4 * v * v]
    features += [
        calm * np.sin(once),
        calm * np.cos(once),
        calm**2 * np.sin(2 * once),
        calm**2 * np.cos(2 * once),
    ]
    return Forms(
        first=table.first,
        ways=table.ways,
        features=np.stack(features, axis=1).astype(np.float32),
        length=(table.length * scale).astype(np.float32),
    )


def _combine(weights: Floats, features: Floats) -> Floats:
    """Sum of weights[:, k] * features[:, k] over k, (n, P); the order of the sum is fixed."""
    total: Floats = weights[:, 0, None] * features[:, 0]
    for k in range(1, FEATURES):
        total += weights[:, k, None] * features[:, k]
    return total


def _place(at: Floats, shift: Floats) -> Floats:
    """Centre paths (n, P) on the paper, as the real images are, up to a shift (n, 1) that margins allow.

    The margin of 2 pixels is what `_blur` needs: it treats all pixels as one line.
    """
    low, high = at.min(axis=1, keepdims=True), at.max(axis=1, keepdims=True)
    fit = REACH / np.maximum(high - low, REACH)
    slack = (SIDE - 5 - fit * (high - low)) / 2
    placed: Floats = (at - (low + high) / 2) * fit + ((SIDE - 1) / 2 + np.clip(shift, -slack, slack))
    return placed


def _splat(x: Floats, y: Floats, ink: Floats) -> Floats:
    """Share the ink of each point (n, P) among the four pixels around it; all pixels, (n * 784,)."""
    n = len(x)
    left, top = x.astype(np.int64), y.astype(np.int64)
    corner = left + SIDE * top + SIDE * SIDE * np.arange(n)[:, None]
    lower = ink * (y - top.astype(np.float32))
    upper = ink - lower
    across = x - left.astype(np.float32)
    lower_right, upper_right = lower * across, upper * across
    where = np.stack([corner, corner + 1, corner + SIDE, corner + SIDE + 1])
    what = np.stack([upper - upper_right, upper_right, lower - lower_right, lower_right])
    return np.bincount(where.ravel(), what.ravel(), minlength=n * SIDE * SIDE).astype(np.float32)


def _blur(pixels: Floats, side: float) -> Floats:
    """Two rounds of a three-point average along x and y; `side` is the weight of either neighbour.

    Pixels are one long line. Ink that reached the end of a row would run into the next, hence `_place`.
    """
    for step in (1, SIDE, 1, SIDE):
        part = side * pixels
        pixels = (1.0 - 2.0 * side) * pixels
        pixels[step:] += part[:-step]
        pixels[:-step] += part[step:]
    return pixels


def _bounded(draw: np.random.Generator, mean: float, deviation: float) -> float:
    """A normal draw within 2.5 deviations, so that no hand is beyond reading."""
    return float(mean + deviation * min(2.5, max(-2.5, draw.standard_normal())))


def _exact(wish: npt.NDArray[np.floating], total: int, low: int, high: int) -> Ints:
    """Whole numbers near `wish`, within [low, high], that sum to `total` exactly."""
    counts: Ints = np.rint(wish).astype(np.int64).clip(low, high)
    while missing := total - int(counts.sum()):
        step = 1 if missing > 0 else -1
        free = np.flatnonzero((low < counts) & (counts < high))
        counts[free[: abs(missing)]] += step
    return counts
