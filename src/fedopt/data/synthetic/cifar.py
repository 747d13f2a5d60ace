"""A synthetic twin of federated CIFAR-10 and CIFAR-100: coloured shapes on textures, drawn from code.

It needs no download and keeps what makes the real sets what they are: 500 and 100 clients of 100 images,
labels in the two levels of CIFAR-100, and clients that hold few of them. The coarse label decides the colours
and the texture of the ground, the fine label the shape and whether it has a hole. Place, size, turn, colours,
light, noise and a patch of something else differ from image to image, so that a model must learn the shape to
tell two fine labels of one coarse label apart, and a random crop and flip leave them apart.

Mixes follow the paper, Dir(0.1) over ten labels and Pachinko with alpha 0.1 and beta 10 over a hundred. Since
images are generated and cannot run out, every client draws from its own mix alone, without the others.

Per pixel, only sums, products and table look-ups are used: the images do not depend on a library's sine.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.partition import log_dirichlet
from fedopt.errors import UserError, unknown

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

CLIENTS = {"train": 500, "test": 100}
EXAMPLES = {"train": 50_000, "test": 10_000}

ALPHA, BETA = 0.1, 10.0  # of the paper's Dirichlet distributions
COARSE, FINE = 20, 100  # fine label y lies in the coarse label y // 5
# The ten labels of CIFAR-10 look like these of the hundred: two shapes on each of five grounds.
LOOKS = np.array([10 * (k // 2) + 2 * k % 5 for k in range(10)])

SIDE = 32  # pixels
GRID = 64  # cells along the side of a shape's table, which spans SIDE pixels at size 1
RADIUS = 8.0  # pixels
WAVE = np.round(np.sin(2 * np.pi * np.arange(256) / 256), 4).astype(np.float32)
NOISE = 0.08  # of a pixel's light, where 1 is white
TINT = 0.12  # deviation of an image's colours from its family's


def sizes(split: str) -> Ints:
    """Images of every client, int64 (clients,): 100 each."""
    if split not in CLIENTS:
        raise unknown("split", split, CLIENTS)
    return np.full(CLIENTS[split], EXAMPLES[split] // CLIENTS[split])


def ids(split: str) -> list[str]:
    """The clients' names in sorted order; the position is the client's number."""
    return [f"client{number:03d}" for number in range(len(sizes(split)))]


def examples(split: str, client: int, classes: int = 100) -> dict[str, npt.NDArray[np.generic]]:
    """The images of one client, a function of the arguments alone.

    Columns are `image` uint8 (n, 32, 32, 3), `label` int64 (n,) and, of 100 classes, `coarse_label` likewise.
    """
    counts, client = sizes(split), int(client)  # a NumPy number would be another key
    if not 0 <= client < len(counts):
        raise UserError(f"there is no client {client} in {split}; they are numbered 0 to {len(counts) - 1}")
    if classes not in (10, 100):
        raise UserError(f"there is no CIFAR-{classes}; allowed: 10, 100")
    draw = rng.generator("synthetic_cifar", classes, split, client)
    mix = _dirichlet_mix(draw) if classes == 10 else _pachinko_mix(draw)
    label = np.searchsorted(np.cumsum(mix)[:-1], draw.random(int(counts[client])), side="right")
    if classes == 10:
        return {"image": _draw(LOOKS[label], draw), "label": label}
    return {"image": _draw(label, draw), "label": label, "coarse_label": label // 5}


def _dirichlet_mix(draw: np.random.Generator) -> npt.NDArray[np.float64]:
    """A client's shares of the ten labels."""
    return _normalized(log_dirichlet(draw, ALPHA, 10))


def _pachinko_mix(draw: np.random.Generator) -> npt.NDArray[np.float64]:
    """A client's shares of the hundred fine labels: theta_r of the coarse label times theta_c within it."""
    theta_r = _normalized(log_dirichlet(draw, ALPHA, COARSE))
    theta = [_normalized(log_dirichlet(draw, BETA, FINE // COARSE)) for _ in range(COARSE)]
    return (theta_r[:, None] * np.stack(theta)).ravel()


def _normalized(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


class Looks(NamedTuple):
    """What the images of a label have in common."""

    shape: Floats  # (FINE * GRID * GRID,) above 0 inside the shape
    colour: Floats  # (COARSE, 2, 3) of the ground and of the shape, from 0 to 1
    ripple: Floats  # (COARSE, 2, 2) waves per pixel along x and y, of two waves


@cache
def _looks() -> Looks:
    """The hundred looks, the same in every process."""
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
    ripple = pitch[:, :, None] * np.stack([np.cos(slope), np.sin(slope)], axis=2)
    return Looks(*(np.round(table, 4).astype(np.float32) for table in (inside.ravel(), colour, ripple)))


def _draw(labels: Ints, draw: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One image for each of `labels` (n,), which are among the hundred; (n, 32, 32, 3)."""
    looks, n = _looks(), len(labels)
    family = labels // 5

    # The ground: two waves of the family's direction and pitch, from any phase.
    ground = _waves(looks.ripple[family, 0], draw) + _waves(looks.ripple[family, 1], draw)
    # The shape, and a smaller one of any kind somewhere else.
    shape = _shape(labels, draw, size=(0.65, 1.25), shift=4.0, turn=0.5)
    stranger = _shape(draw.integers(0, FINE, n), draw, size=(0.4, 0.6), shift=11.0, turn=3.0)

    # Either of the family's colours may be the ground's, so that no pixel by itself tells of the shape.
    colour = looks.colour[family] + TINT * _normal(draw, n, 2, 3)
    colour = np.where(draw.random((n, 1, 1)) < 0.5, colour, colour[:, ::-1])
    other = 0.5 + 0.25 * _normal(draw, n, 1, 3)
    light = (1.0 + 0.15 * _normal(draw, n, 1, 1)) * (1.0 + 0.012 * _slope(draw, n))
    light += 0.14 * ground + NOISE * _normal(draw, n, SIDE, SIDE)
    image = np.empty((n, SIDE, SIDE, 3), dtype=np.float32)
    for channel in range(3):
        below, above = colour[:, 0, channel, None, None], colour[:, 1, channel, None, None]
        paint = below + stranger * (other[:, :, channel, None] - below)
        paint += shape * (above - paint)
        image[..., channel] = paint * light
    return np.rint(255.0 * image.clip(0.0, 1.0)).astype(np.uint8)


def _waves(ripple: Floats, draw: np.random.Generator) -> Floats:
    """A wave of `ripple` (n, 2) waves per pixel along x and y, from -1 to 1, (n, 32, 32)."""
    n = len(ripple)
    pitch = 256.0 * ripple * (1.0 + 0.12 * _normal(draw, n, 2))
    phase = pitch[:, 1, None, None] * _PIXELS[:, None] + pitch[:, 0, None, None] * _PIXELS
    phase += 256.0 * draw.random((n, 1, 1), dtype=np.float32)
    wave: Floats = WAVE[phase.astype(np.int64) & 255]
    return wave


def _shape(
    labels: Ints, draw: np.random.Generator, size: tuple[float, float], shift: float, turn: float
) -> Floats:
    """How far each pixel lies in the shape of `labels`, from 0 to 1 with soft edges, (n, 32, 32)."""
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
    soft: Floats = (0.5 + 5.0 * _looks().shape[cell]).clip(0.0, 1.0)
    return soft


def _cell(at: npt.NDArray[np.floating]) -> Ints:
    """The cell of a shape's table at this distance from its middle, or the last where it ends."""
    return (at + GRID / 2).clip(0, GRID - 1).astype(np.int64)


def _slope(draw: np.random.Generator, n: int) -> Floats:
    """Light that falls from one side, (n, 32, 32)."""
    along = _normal(draw, n, 2)
    return along[:, 0, None, None] * _PIXELS + along[:, 1, None, None] * _PIXELS[:, None]


def _normal(draw: np.random.Generator, *shape: int) -> Floats:
    return draw.standard_normal(shape, dtype=np.float32)


_PIXELS: Floats = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
