"""Synthetic CIFAR-10 and CIFAR-100: coloured shapes on textures.

As in the real datasets, there are 500 train and 100 test clients with 100 images each, CIFAR-100 has two
levels of labels, and a client has few labels. The coarse label determines the colours and the texture of the
background. The fine label determines the shape and whether it has a hole. Position, size, rotation, colours,
light, noise and a second shape vary between images. A model must therefore learn the shape to distinguish the
fine labels of a coarse label, also after random crops and flips.

Label distributions follow the paper: Dir(0.1) over ten labels, and Pachinko with alpha 0.1 and beta 10 over a
hundred. Images are generated and never run out, so clients draw independently of each other.

Per pixel, only sums, products and table look-ups are used, so images do not depend on a library's sine.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.partition import log_dirichlet
from fedopt.data.synthetic.common import Doubles, Integers, Singles, check_client, count_clients
from fedopt.errors import DataError

CLIENTS = {"train": 500, "test": 100}
EXAMPLES = {"train": 50_000, "test": 10_000}

ALPHA, BETA = 0.1, 10.0  # of the paper's Dirichlet distributions
COARSE, FINE = 20, 100  # fine label y belongs to the coarse label y // 5
# The labels of CIFAR-10 look like these labels of CIFAR-100: two shapes on each of five backgrounds.
CIFAR10_LABELS = np.array([10 * (k // 2) + 2 * k % 5 for k in range(10)])

SIDE = 32  # pixels
GRID = 64  # cells along the side of a shape's table, which covers SIDE pixels at size 1
RADIUS = 8.0  # pixels
WAVE = np.round(np.sin(2 * np.pi * np.arange(256) / 256), 4).astype(np.float32)
NOISE = 0.08  # standard deviation per pixel, where 1 is white
TINT = 0.12  # standard deviation of the colours of an image


def sizes(split: str) -> Integers:
    """Return the number of images of each client, int64 (clients,): 100 each."""
    clients = count_clients(CLIENTS, split)
    return np.full(clients, EXAMPLES[split] // clients)


def ids(split: str) -> list[str]:
    """Return the sorted names of the clients."""
    return [f"client{number:03d}" for number in range(count_clients(CLIENTS, split))]


def examples(split: str, client: int, classes: int = 100) -> dict[str, npt.NDArray[np.generic]]:
    """Return the columns of one client.

    They are `image` uint8 (n, 32, 32, 3), `label` int64 (n,) and, for 100 classes, `coarse_label` int64 (n,).
    """
    label, draw = _draw_labels(split, client, classes)
    if classes == 10:
        return {"image": _draw_images(CIFAR10_LABELS[label], draw), "label": label}
    return {"image": _draw_images(label, draw), "label": label, "coarse_label": label // 5}


def labels(split: str, client: int, classes: int = 100) -> Integers:
    """Return the labels of one client without drawing the images."""
    return _draw_labels(split, client, classes)[0]


def _draw_labels(split: str, client: int, classes: int) -> tuple[Integers, np.random.Generator]:
    counts = sizes(split)
    client = check_client(split, client, len(counts))
    if classes not in (10, 100):
        raise DataError(f"there is no CIFAR-{classes}; allowed: 10, 100")
    draw = rng.generator("synthetic_cifar", classes, split, client)
    mix = _dirichlet_mix(draw) if classes == 10 else _pachinko_mix(draw)
    return np.searchsorted(np.cumsum(mix)[:-1], draw.random(int(counts[client])), side="right"), draw


def _dirichlet_mix(draw: np.random.Generator) -> Doubles:
    """Draw a client's shares of the ten labels."""
    return _normalized(log_dirichlet(draw, ALPHA, 10))


def _pachinko_mix(draw: np.random.Generator) -> Doubles:
    """Draw a client's shares of the fine labels: theta_r of the coarse label times theta_c within it."""
    theta_r = _normalized(log_dirichlet(draw, ALPHA, COARSE))
    theta = [_normalized(log_dirichlet(draw, BETA, FINE // COARSE)) for _ in range(COARSE)]
    return (theta_r[:, None] * np.stack(theta)).ravel()


def _normalized(logs: Doubles) -> Doubles:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


class LabelTables(NamedTuple):
    """The shapes, colours and textures of the labels."""

    shape: Singles  # (FINE * GRID * GRID,) above 0 inside the shape
    colour: Singles  # (COARSE, 2, 3) of background and shape, from 0 to 1
    texture: Singles  # (COARSE, 2, 2) frequency along x and y, per pixel, of two waves


@cache
def _label_tables() -> LabelTables:
    """Build the tables of the 100 labels."""
    draw = rng.generator("synthetic_cifar", "looks")
    label = np.arange(FINE)[:, None, None]
    at = (np.arange(GRID) + 0.5) * (SIDE / GRID) - SIDE / 2
    angle, distance = np.arctan2(at[:, None], at), np.hypot(at[:, None], at)
    depth, skew, edge, turn = (
        draw.uniform(low, high, (FINE, 1, 1))
        for low, high in [(0.24, 0.36), (0.10, 0.26), (0.0, 0.1), (0.0, 6.28)]
    )
    lobes = 2 + label % 5
    radius = 1 + depth * np.cos(lobes * angle + turn) + skew * np.cos(angle) + edge * np.cos(9 * angle)
    inside = 1.0 - distance / (RADIUS * radius)
    holed = (label // 5 + label) % 2 == 1
    inside = np.where(holed, np.minimum(inside, 0.62 - inside), inside)

    family = np.arange(COARSE)
    hue = 2 * np.pi * np.stack([family / COARSE, family / COARSE + 0.3 + 0.4 * (family % 3) / 2], axis=1)
    colour = 0.5 + 0.27 * np.cos(hue[:, :, None] + np.array([0.0, 2.1, 4.2]))
    slope = np.pi * np.stack([7 * family % COARSE, 7 * family % COARSE + 8], axis=1) / COARSE
    pitch = np.stack([0.05 + 0.025 * (family % 4), 0.04 + 0.03 * (family % 5)], axis=1)
    texture = pitch[:, :, None] * np.stack([np.cos(slope), np.sin(slope)], axis=2)
    return LabelTables(
        *(np.round(table, 4).astype(np.float32) for table in (inside.ravel(), colour, texture))
    )


def _draw_images(labels: Integers, draw: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Draw one image for each of `labels`, which are labels of CIFAR-100: (n,) -> (n, 32, 32, 3)."""
    tables, n = _label_tables(), len(labels)
    family = labels // 5

    # The background: two waves with the direction and frequency of the family, and a random phase.
    background = _waves(tables.texture[family, 0], draw) + _waves(tables.texture[family, 1], draw)
    # The shape, and a smaller random shape at another position.
    shape = _shape(labels, draw, size=(0.65, 1.25), shift=4.0, turn=0.5)
    distractor = _shape(draw.integers(0, FINE, n), draw, size=(0.4, 0.6), shift=11.0, turn=3.0)

    # The two colours are swapped at random, so a single pixel has no information about the shape.
    colour = tables.colour[family] + TINT * _normal(draw, n, 2, 3)
    colour = np.where(draw.random((n, 1, 1)) < 0.5, colour, colour[:, ::-1])
    other = 0.5 + 0.25 * _normal(draw, n, 1, 3)
    light = (1.0 + 0.15 * _normal(draw, n, 1, 1)) * (1.0 + 0.012 * _slope(draw, n))
    light += 0.14 * background + NOISE * _normal(draw, n, SIDE, SIDE)
    image = np.empty((n, SIDE, SIDE, 3), dtype=np.float32)
    for channel in range(3):
        below, above = colour[:, 0, channel, None, None], colour[:, 1, channel, None, None]
        paint = below + distractor * (other[:, :, channel, None] - below)
        paint += shape * (above - paint)
        image[..., channel] = paint * light
    return np.rint(255.0 * image.clip(0.0, 1.0)).astype(np.uint8)


def _waves(texture: Singles, draw: np.random.Generator) -> Singles:
    """Return waves with frequencies `texture`, (n, 2), along x and y, from -1 to 1, (n, 32, 32)."""
    n = len(texture)
    pitch = 256.0 * texture * (1.0 + 0.12 * _normal(draw, n, 2))
    phase = pitch[:, 1, None, None] * _PIXELS[:, None] + pitch[:, 0, None, None] * _PIXELS
    phase += 256.0 * draw.random((n, 1, 1), dtype=np.float32)
    wave: Singles = WAVE[phase.astype(np.int64) & 255]
    return wave


def _shape(
    labels: Integers, draw: np.random.Generator, size: tuple[float, float], shift: float, turn: float
) -> Singles:
    """Return the coverage of each pixel by the shape of `labels`, from 0 to 1, (n, 32, 32)."""
    n = len(labels)
    scale = (GRID / SIDE) / draw.uniform(*size, (n, 1)).astype(np.float32)
    stretch = 1.0 + 0.1 * _normal(draw, n, 1).clip(-2, 2)
    angle = turn * draw.uniform(-1, 1, n)
    cos, sin = (np.round(f(angle), 5).astype(np.float32)[:, None] for f in (np.cos, np.sin))
    middle = shift * draw.uniform(-1, 1, (n, 2)).astype(np.float32)
    x, y = _PIXELS - middle[:, :1], _PIXELS - middle[:, 1:]
    column = (scale * stretch * cos * x)[:, None, :] + (scale * stretch * sin * y)[:, :, None]
    row = (scale * cos * y)[:, :, None] - (scale * sin * x)[:, None, :]
    cell = (labels * GRID * GRID)[:, None, None] + GRID * _cell(row) + _cell(column)
    soft: Singles = (0.5 + 5.0 * _label_tables().shape[cell]).clip(0.0, 1.0)
    return soft


def _cell(at: npt.NDArray[np.floating]) -> Integers:
    """Return the cell of a shape's table at this distance from its centre, limited to the table."""
    return (at + GRID / 2).clip(0, GRID - 1).astype(np.int64)


def _slope(draw: np.random.Generator, n: int) -> Singles:
    """Return a linear light gradient, (n, 32, 32)."""
    along = _normal(draw, n, 2)
    return along[:, 0, None, None] * _PIXELS + along[:, 1, None, None] * _PIXELS[:, None]


def _normal(draw: np.random.Generator, *shape: int) -> Singles:
    return draw.standard_normal(shape, dtype=np.float32)


_PIXELS: Singles = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
