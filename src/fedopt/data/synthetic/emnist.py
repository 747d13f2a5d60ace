"""Synthetic EMNIST-62: 3,400 writers, each with their own handwriting.

It matches the real dataset in the numbers of writers and examples. Each writer has their own distribution of
characters, and handwriting differs more between writers than within one. As in the real files, the
background is 255 and ink is dark. Labels are 0-9, then A-Z, then a-z.

An image starts from points along the path of the pen (`glyphs`). A linear map of fixed features of the path
moves the points. They are added to the pixel grid and blurred to the width of a pen. All images of a writer
are drawn by the same array operations. They only add and multiply in a fixed order, so the result does not
depend on the order of sums in a library.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.synthetic import glyphs
from fedopt.data.synthetic.common import Doubles, Integers, Singles, check_client, count_clients, read_only

WRITERS = 3400
CLIENTS = {"train": WRITERS, "test": WRITERS}
EXAMPLES = {"train": 671_585, "test": 77_483}

SIDE = 28  # pixels
POINTS = 112  # per glyph; at most 0.8 pixels apart on the longest path
BATCH = 50  # images drawn together; their arrays fit into the processor's cache
MAX_SPAN = 22.0  # pixels between the ends of a path, so that all ink is inside the image
SMALL = 0.86  # height of a letter like 'o' relative to 'O'
FEATURES = 10  # 1, u, v: position and affine map; uv, uu, vv: bending; the rest: waves along the path
AMPLITUDE = np.array([0, 1, 1, 1, 1, 1, 1, 1, 0.7, 0.7], dtype=np.float32)
WRITER_BEND, GLYPH_BEND, IMAGE_BEND = 0.02, 0.04, 0.025  # standard deviations of the bending
JITTER = 7  # other variations of an image: slant, rotation, size, width, x, y, darkness
MIX = 2.0  # mean Dirichlet parameter of a character; larger values give more similar writers

# Frequency of each character in the order of the labels. Digits are half of all examples. Letters follow the
# real dataset, in which a few (O, S, e, t) are common and most are rare.
FREQUENCY = np.array(
    [40.0] * 10
    + [7, 4, 11, 5, 5, 10, 3, 4, 13, 4, 3, 6, 10, 9, 28, 9, 3, 5, 23, 11, 14, 5, 5, 3, 5, 3]
    + [11, 6, 3, 12, 28, 3, 4, 10, 3, 2, 3, 17, 3, 13, 3, 3, 4, 16, 3, 21, 3, 3, 3, 3, 3, 3]
)


@cache
def sizes(split: str) -> Integers:
    """Return the number of examples of each writer, int64 (3400,). As in the real data, some wrote twice."""
    count_clients(CLIENTS, split)
    total = EXAMPLES[split]
    if split == "test":
        return _round_to_total(sizes("train") * (total / EXAMPLES["train"]), total, 2, 60)
    draw = rng.generator("synthetic_emnist", "sizes")
    group = draw.choice(3, WRITERS, p=[0.66, 0.30, 0.04])
    once, twice = draw.normal(155, 28, WRITERS), draw.normal(300, 48, WRITERS)
    wanted = np.choose(group, [once, twice, draw.uniform(20, 150, WRITERS)])
    return _round_to_total(wanted, total, 20, 418)


def ids(split: str) -> list[str]:
    """Return the sorted names of the writers, which are the same in both splits."""
    return [f"writer{number:04d}" for number in range(count_clients(CLIENTS, split))]


def examples(split: str, client: int) -> dict[str, npt.NDArray[np.generic]]:
    """Return the columns of one writer: `pixels` uint8 (n, 28, 28) and `label` int64 (n,)."""
    hand, labels, draw = _draw_labels(split, client)
    n = len(labels)
    noise = draw.standard_normal((n, 2 * FEATURES + JITTER), dtype=np.float32).clip(-2.5, 2.5)
    starts = range(0, n, BATCH)
    parts = [_draw_images(hand, labels[i : i + BATCH], noise[i : i + BATCH]) for i in starts]
    return {"pixels": np.concatenate(parts), "label": labels}


def labels(split: str, client: int) -> Integers:
    """Return the labels of one writer without drawing the images."""
    return _draw_labels(split, client)[1]


def _draw_labels(split: str, client: int) -> tuple[Handwriting, Integers, np.random.Generator]:
    counts = sizes(split)
    writer = check_client(split, client, WRITERS)
    hand = _handwriting(writer)
    draw = rng.generator("synthetic_emnist", split, writer)
    return hand, np.searchsorted(hand.mix, draw.random(int(counts[writer])), side="right"), draw


class Handwriting(NamedTuple):
    """The properties that all images of a writer share."""

    mix: Doubles  # (62,) cumulative shares of the characters
    rows: Integers  # (62,) the variant of each character
    bend: Singles  # (62, 2, FEATURES) deviation of each glyph from its standard form
    slant: float  # shift to the right per unit of height
    turn: float  # rotation in radians
    width: float
    size: float  # pixels of the longer side
    baseline: float  # pixels below the centre
    pen: float  # blur: the outer weight of a three-point average
    pressure: float  # darkness
    care: float  # scale of the variation between images
    swell: Singles  # (2,) change of the pressure along the path


def _handwriting(writer: int) -> Handwriting:
    """Return the handwriting of a writer. It depends only on the number, so both splits share it."""
    draw = rng.generator("synthetic_emnist", "hand", writer)
    shares = draw.gamma(MIX * FREQUENCY / FREQUENCY.mean())
    standard = _glyph_features()
    own, each = draw.standard_normal((1, 2, FEATURES)), draw.standard_normal((62, 2, FEATURES))
    return Handwriting(
        mix=np.append(np.cumsum(shares)[:-1] / shares.sum(), 1.0),
        rows=standard.first + (standard.variants * draw.random(62)).astype(np.int64),
        bend=((WRITER_BEND * own + GLYPH_BEND * each) * AMPLITUDE).astype(np.float32),
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


def _draw_images(hand: Handwriting, labels: Integers, noise: Singles) -> npt.NDArray[np.uint8]:
    """Draw one image per label, (n, 28, 28). `noise`, (n, 27), has the variations between images."""
    standard = _glyph_features()
    rows = hand.rows[labels]
    features = standard.features[rows]
    noise = hand.care * noise
    wobble = noise[:, :-JITTER].reshape(-1, 2, FEATURES)
    jitter = noise[:, -JITTER:].T[:, :, None]

    # The shape of the path: the standard u and v, and the deviations of the writer and of this image.
    bend = hand.bend[labels] + IMAGE_BEND * AMPLITUDE * wobble
    bend[:, 0, 1] += 1.0
    bend[:, 1, 2] += 1.0

    # Slant, width and rotation are applied to the weights of the features instead of to every point.
    slant = hand.slant + 0.05 * jitter[0]
    turn = hand.turn + 0.04 * jitter[1]
    size = hand.size * (1.0 + 0.03 * jitter[2])
    width = size * hand.width * (1.0 + 0.05 * jitter[3])
    right, down = width * (bend[:, 0] - slant * bend[:, 1]), size * bend[:, 1]
    x = _combine(right - turn * down, features)
    y = _combine(turn * right + down, features)
    x = _place(x, 0.4 * jitter[4])
    y = _place(y, 0.4 * jitter[5] + hand.baseline)

    # The ink of a point is proportional to the length of its part of the path.
    ink = standard.length[rows, None] * size * (hand.pressure / POINTS) * (1.0 + 0.08 * jitter[6])
    swell = hand.swell[0] * features[:, 6] + hand.swell[1] * features[:, 7]
    paper = _blur(_splat(x, y, ink * (1.0 + swell)), hand.pen)
    white = 1.0 - np.minimum(paper, 1.0)
    return np.rint(255.0 * white).astype(np.uint8).reshape(-1, SIDE, SIDE)


class GlyphFeatures(NamedTuple):
    """The features of all glyphs, for `_draw_images`."""

    first: Integers  # (62,)
    variants: Integers  # (62,)
    features: Singles  # (rows, FEATURES, POINTS)
    length: Singles  # (rows,)


@cache
def _glyph_features() -> GlyphFeatures:
    """Return the features of every glyph. A path is a weighted sum of them."""
    table = glyphs.table(POINTS)
    small = [character in "acenorsuvwxz" for character in glyphs.CHARACTERS]
    scale = np.where(np.repeat(small, table.variants), SMALL, 1.0)
    u, v = np.moveaxis(table.points * scale[:, None, None], 2, 0)
    # The amplitude of waves is proportional to the length, so that a short stroke stays straight.
    once = 2 * np.pi * (np.arange(POINTS) + 0.5) / POINTS
    amplitude = np.minimum(table.length * scale / 2.5, 1.0)[:, None]
    features = [np.ones_like(u), u, v, 4 * u * v, 4 * u * u, 4 * v * v]
    features += [
        amplitude * np.sin(once),
        amplitude * np.cos(once),
        amplitude**2 * np.sin(2 * once),
        amplitude**2 * np.cos(2 * once),
    ]
    return GlyphFeatures(
        first=table.first,
        variants=table.variants,
        features=np.stack(features, axis=1).astype(np.float32),
        length=(table.length * scale).astype(np.float32),
    )


def _combine(weights: Singles, features: Singles) -> Singles:
    """Return the sum of weights[:, k] * features[:, k] over k in a fixed order, (n, P)."""
    total: Singles = weights[:, 0, None] * features[:, 0]
    for k in range(1, FEATURES):
        total += weights[:, k, None] * features[:, k]
    return total


def _place(at: Singles, shift: Singles) -> Singles:
    """Centre paths, (n, P), in the image, as in the real data. `shift`, (n, 1), is limited by the margins.

    `_blur` needs a margin of 2 pixels, because it treats all pixels as one line.
    """
    low, high = at.min(axis=1, keepdims=True), at.max(axis=1, keepdims=True)
    fit = MAX_SPAN / np.maximum(high - low, MAX_SPAN)
    slack = (SIDE - 5 - fit * (high - low)) / 2
    placed: Singles = (at - (low + high) / 2) * fit + ((SIDE - 1) / 2 + np.clip(shift, -slack, slack))
    return placed


def _splat(x: Singles, y: Singles, ink: Singles) -> Singles:
    """Distribute the ink of each point, (n, P), to the four nearest pixels. Return all pixels, (n * 784,)."""
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


def _blur(pixels: Singles, side: float) -> Singles:
    """Apply a three-point average twice along x and y. `side` is the weight of each neighbour.

    Pixels are one line. `_place` keeps ink away from the ends of a row, where it would reach the next row.
    """
    for step in (1, SIDE, 1, SIDE):
        part = side * pixels
        pixels = (1.0 - 2.0 * side) * pixels
        pixels[step:] += part[:-step]
        pixels[:-step] += part[step:]
    return pixels


def _bounded(draw: np.random.Generator, mean: float, deviation: float) -> float:
    """Draw from a normal distribution, limited to 2.5 standard deviations to keep characters legible."""
    return float(mean + deviation * min(2.5, max(-2.5, draw.standard_normal())))


def _round_to_total(wanted: npt.NDArray[np.floating], total: int, low: int, high: int) -> Integers:
    """Return integers near `wanted`, within [low, high], with the sum `total`."""
    counts: Integers = np.rint(wanted).astype(np.int64).clip(low, high)
    while missing := total - int(counts.sum()):
        step = 1 if missing > 0 else -1
        free = np.flatnonzero((low < counts) & (counts < high))
        counts[free[: abs(missing)]] += step
    return read_only(counts)
