"""The 62 characters as pen strokes, for synthetic EMNIST. Strokes need no fonts and can be deformed.

A glyph is text: points `x,y` of the pen in a box from 0,0 (top left) to 100,100 (bottom right). The path
through the points is smooth. `|` makes the previous point a corner, and `;` lifts the pen. A stroke that ends
at its first point is closed smoothly. For example, `12,0 50,100 | 88,0` is a V.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedopt.data.synthetic.common import Doubles, Integers

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# Several entries for a character are variants in which people write it.
GLYPHS: dict[str, tuple[str, ...]] = {
    "0": ("50,0 18,28 18,72 50,100 82,72 82,28 50,0", "50,0 22,50 50,100 78,50 50,0"),
    "1": ("50,0 50,100", "28,22 54,0 | 54,100", "30,20 52,0 | 52,98 ; 24,98 80,98"),
    "2": ("18,26 46,0 78,26 56,62 14,98 | 86,98", "18,24 48,0 76,26 50,70 24,96 16,84 36,80 62,94 88,94"),
    "3": ("18,14 52,0 78,24 44,47 | 82,72 50,100 14,84", "18,2 78,2 | 44,42 | 80,70 48,100 14,86"),
    "4": ("64,100 64,0 | 10,66 | 90,66", "20,4 16,56 | 86,56 ; 68,14 66,100"),
    "5": (
        "80,2 28,2 | 22,46 | 52,38 82,68 50,100 14,86",
        "24,2 22,44 | 54,38 82,68 50,100 14,86 ; 24,2 82,2",
    ),
    "6": ("70,0 32,36 20,72 50,100 80,74 52,50 22,68", "60,0 24,48 24,84 50,100 74,82 68,60 46,58 24,78"),
    "7": ("14,2 84,2 | 40,100", "14,2 84,2 | 44,100 ; 32,50 76,50", "14,16 16,2 | 84,2 | 56,48 46,100"),
    "8": (
        "50,48 22,24 50,0 78,24 50,48 18,74 50,100 82,74 50,48",
        "76,16 50,0 24,22 50,46 80,74 50,100 20,74 48,48 76,16",
    ),
    "9": ("78,26 48,50 20,26 48,0 78,26 | 76,100", "78,24 50,48 20,24 50,0 78,24 72,68 36,100"),
    "A": ("8,100 50,0 | 92,100 ; 24,64 76,64", "10,100 18,30 50,0 82,30 90,100 ; 12,62 88,62"),
    "B": (
        "20,0 20,100 ; 20,2 50,0 76,24 50,46 22,47 | 56,50 84,74 52,100 20,98",
        "22,100 22,4 | 56,2 74,24 48,46 | 80,58 76,92 14,98",
    ),
    "C": ("84,18 52,0 16,50 52,100 84,84",),
    "D": ("22,0 22,100 ; 20,2 60,8 86,50 60,92 20,98", "22,100 22,2 | 70,14 84,56 62,92 10,98"),
    "E": ("82,2 20,2 | 20,98 | 84,98 ; 20,48 70,48", "80,12 52,0 26,22 54,46 | 18,72 50,100 84,86"),
    "F": ("82,2 22,2 | 22,100 ; 22,46 70,46", "24,4 24,100 ; 14,4 86,2 ; 24,48 66,46"),
    "G": (
        "82,18 52,0 16,50 50,100 82,84 84,56 | 54,56",
        "78,16 50,0 16,50 46,98 80,62 ; 52,60 82,60 | 82,100",
    ),
    "H": ("18,0 18,100 ; 82,0 82,100 ; 18,50 82,50",),
    "I": ("50,0 50,100", "22,2 78,2 ; 50,2 50,98 ; 22,98 78,98"),
    "J": ("70,0 70,55 65,86 42,100 16,78", "66,2 66,60 60,88 40,100 16,80 ; 34,2 96,2"),
    "K": ("20,0 20,100 ; 80,2 22,54 ; 38,42 84,100", "20,0 20,100 ; 82,2 24,52 | 84,98"),
    "L": ("24,0 24,98 | 82,98", "28,0 24,60 26,92 40,98 84,94"),
    "M": ("10,100 18,0 | 50,62 | 82,0 | 90,100", "8,100 14,40 24,4 | 50,70 | 76,4 86,40 92,100"),
    "N": ("16,100 16,0 | 84,100 | 84,0", "12,100 22,4 | 76,96 | 88,0"),
    "O": ("50,0 10,50 50,100 90,50 50,0", "56,0 18,22 16,74 50,100 84,74 84,26 48,2"),
    "P": ("22,100 22,0 ; 20,2 56,0 82,26 54,52 22,52", "24,100 24,8 | 54,0 80,24 56,48 24,50"),
    "Q": ("50,0 10,48 50,94 90,48 50,0 ; 58,66 94,100", "52,0 14,44 50,88 88,44 52,0 ; 40,78 60,92 92,96"),
    "R": (
        "22,100 22,0 ; 20,2 56,0 80,24 54,48 22,48 | 84,100",
        "22,100 22,6 | 56,0 78,24 34,50 | 60,80 90,98",
    ),
    "S": ("80,16 50,0 22,22 50,48 80,76 50,100 18,84",),
    "T": ("10,2 90,2 ; 50,2 50,100",),
    "U": ("16,0 16,50 22,84 50,100 78,84 84,50 84,0", "16,0 18,60 46,98 82,62 ; 82,0 82,98"),
    "V": ("12,0 50,100 | 88,0",),
    "W": (
        "4,0 28,100 | 50,26 | 72,100 | 96,0",
        "6,0 10,50 20,90 34,96 46,70 50,30 | 54,70 66,96 80,90 90,50 94,0",
    ),
    "X": ("14,0 86,100 ; 86,0 14,100",),
    "Y": ("12,0 50,50 | 88,0 ; 50,50 50,100", "14,0 22,36 48,50 80,28 86,0 ; 84,14 74,60 44,100"),
    "Z": ("14,2 86,2 | 14,98 | 88,98", "14,2 84,2 | 16,98 | 86,98 ; 30,50 72,50"),
    "a": (
        "80,24 46,2 14,52 44,98 80,56 ; 80,4 80,50 84,84 98,96",
        "24,16 52,2 76,26 78,60 78,98 ; 78,42 44,46 20,72 44,98 78,78",
    ),
    "b": ("22,0 22,98 ; 22,64 52,42 82,70 52,100 22,84", "26,0 22,50 24,84 50,100 78,76 54,50 24,70"),
    "c": ("82,20 50,0 16,50 50,100 84,84",),
    "d": (
        "78,0 78,100 ; 78,60 48,42 18,70 48,100 78,80",
        "74,56 44,44 18,74 44,98 74,72 ; 76,0 76,50 78,86 92,98",
    ),
    "e": ("18,54 82,48 | 50,2 16,50 50,98 84,80", "18,60 60,52 80,26 52,2 18,50 48,98 86,76"),
    "f": ("80,12 62,0 46,18 44,48 44,100 ; 20,44 72,44", "78,10 60,2 50,24 48,74 38,96 20,98 ; 24,48 74,46"),
    "g": (
        "78,14 48,0 20,30 48,60 78,34 ; 80,0 80,70 72,92 48,100 20,88",
        "52,0 22,24 50,48 80,24 52,0 ; 80,2 78,74 50,100 26,88 50,70 96,56",
    ),
    "h": (
        "20,0 20,100 ; 20,62 48,42 70,52 78,72 78,100",
        "36,50 44,12 32,2 22,30 20,98 | 24,66 50,44 72,62 74,92 90,94",
    ),
    "i": ("50,34 50,100 ; 50,0 51,9", "46,34 46,82 54,98 70,92 ; 46,0 47,9"),
    "j": ("60,28 60,72 54,94 36,100 18,88 ; 60,0 61,9", "62,28 60,80 42,100 30,86 52,70 86,58 ; 62,0 63,9"),
    "k": ("22,0 22,100 ; 74,40 24,72 ; 38,62 80,100", "22,0 22,100 ; 22,64 50,34 72,46 54,66 26,68 | 80,98"),
    "l": ("50,0 50,100", "28,66 58,24 48,0 38,30 42,84 68,96", "42,0 42,80 50,96 66,94"),
    "m": (
        "6,18 6,88 ; 6,46 28,20 46,36 50,60 50,88 ; 50,48 72,20 90,36 94,60 94,88",
        "4,18 8,88 | 14,46 28,20 44,38 48,88 | 54,46 70,20 86,38 88,74 98,86",
    ),
    "n": ("18,2 18,98 ; 18,40 50,4 80,36 82,98", "6,22 18,6 24,40 24,96 | 34,30 52,6 70,26 74,76 92,94"),
    "o": ("50,4 10,50 50,96 90,50 50,4", "56,4 18,28 18,74 50,96 82,74 82,28 50,4 70,18 92,12"),
    "p": ("22,0 22,100 ; 22,20 52,0 80,28 52,56 22,42", "24,4 22,100 ; 8,22 48,0 78,26 52,54 24,46"),
    "q": ("78,0 78,100 ; 78,16 48,0 20,28 48,56 78,42", "76,12 46,0 18,28 46,56 76,34 ; 76,2 76,98 | 94,80"),
    "r": ("24,4 24,98 ; 24,44 46,12 80,14", "10,30 30,6 40,20 66,22 | 62,70 72,94 90,90"),
    "s": ("78,18 50,2 22,24 50,48 80,76 50,98 18,84", "12,86 52,4 | 60,42 82,72 62,98 40,92"),
    "t": ("46,0 46,72 54,96 78,90 ; 16,30 80,30", "50,0 50,100 ; 16,34 84,34"),
    "u": ("16,4 16,60 42,96 80,62 ; 80,4 80,50 84,84 98,96", "16,4 16,46 22,84 50,96 78,84 84,46 84,4"),
    "v": ("12,4 50,96 | 88,4", "14,4 24,50 46,94 | 70,50 80,4"),
    "w": (
        "4,14 28,86 | 50,34 | 72,86 | 96,14",
        "4,16 8,54 20,82 34,82 46,64 50,32 | 54,64 66,82 80,82 92,54 96,16",
    ),
    "x": ("14,4 86,96 ; 86,4 14,96", "8,14 26,8 70,92 90,84 ; 84,4 18,96"),
    "y": ("14,0 48,54 ; 86,0 26,100", "18,0 20,36 46,52 78,30 ; 80,0 78,74 50,100 20,86"),
    "z": (
        "16,4 82,4 | 16,96 | 86,96",
        "16,4 82,4 | 18,96 | 84,96 ; 30,50 70,50",
        "16,10 52,2 62,20 32,44 | 62,54 56,84 38,98 28,84 84,58",
    ),
}


class GlyphTable(NamedTuple):
    """All variants of all characters, as points at equal distances along the path."""

    first: Integers  # (62,) row of the first variant of a character
    variants: Integers  # (62,) number of variants
    points: Doubles  # (rows, P, 2) x and y relative to the centre of the glyph; the longer side is 1
    length: Doubles  # (rows,) of the path, in the same unit


def table(points: int) -> GlyphTable:
    """Sample every glyph at `points` points.

    >>> glyphs = table(100)
    >>> glyphs.points.shape[1:], int(glyphs.variants.sum()) == len(glyphs.length)
    ((100, 2), True)
    """
    variants = np.array([len(GLYPHS[character]) for character in CHARACTERS], dtype=np.int64)
    paths = [sample(path(text), points) for character in CHARACTERS for text in GLYPHS[character]]
    return GlyphTable(
        first=np.cumsum(variants) - variants,
        variants=variants,
        points=np.stack([spots for spots, _ in paths]),
        length=np.array([length for _, length in paths]),
    )


def path(text: str) -> list[Doubles]:
    """Return the strokes of a glyph as dense polylines, each (n, 2)."""
    strokes = []
    for stroke in text.split(";"):
        pieces: list[Doubles] = []
        for piece in stroke.split("|"):
            knots = np.array([[float(v) for v in knot.split(",")] for knot in piece.split()])
            if pieces:  # a corner ends one smooth piece and starts the next
                knots = np.concatenate([pieces[-1][-1:], knots])
            pieces.append(smooth(knots))
        strokes.append(np.concatenate(pieces))
    return strokes


def smooth(knots: Doubles, steps: int = 24) -> Doubles:
    """Return a smooth curve through `knots`, (n, 2). Three knots give approximately a circular arc.

    The direction at a knot is that of the circle through the knot and its neighbours. The handles of the
    Bezier pieces have 0.37 of the chord length, between the exact values for 1/4 and 1/8 of a circle.
    """
    if len(knots) == 2:
        return np.linspace(knots[0], knots[1], steps)
    closed = bool((knots[0] == knots[-1]).all())
    chord = np.diff(knots, axis=0)
    size = np.hypot(chord[:, 0], chord[:, 1])[:, None]
    unit = chord / size
    inner = unit[:-1] * size[1:] + unit[1:] * size[:-1]
    if closed:
        head = tail = unit[-1] * size[0] + unit[0] * size[-1]
    else:  # mirror the direction of the neighbour at the chord, as on a circle
        head = 2 * unit[0] * (unit[0] @ inner[0]) - inner[0]
        tail = 2 * unit[-1] * (unit[-1] @ inner[-1]) - inner[-1]
    tangent = np.concatenate([[head], inner, [tail]])
    tangent /= np.hypot(tangent[:, 0], tangent[:, 1])[:, None]
    a, d = knots[:-1], knots[1:]
    b, c = a + 0.37 * size * tangent[:-1], d - 0.37 * size * tangent[1:]
    t = np.linspace(0.0, 1.0, steps)[:, None, None]
    curve: Doubles = a * (1 - t) ** 3 + 3 * b * t * (1 - t) ** 2 + 3 * c * t**2 * (1 - t) + d * t**3
    return curve.transpose(1, 0, 2).reshape(-1, 2)


def sample(strokes: list[Doubles], points: int) -> tuple[Doubles, float]:
    """Return points at equal distances over all strokes, (points, 2), centred and scaled, and the length."""
    ink = np.concatenate(strokes)
    low, high = ink.min(axis=0), ink.max(axis=0)
    scale = float((high - low).max())
    steps = [np.append(np.hypot(*np.diff(s, axis=0).T), 0.0) for s in strokes]
    ends = np.cumsum(np.concatenate(steps))  # a step of 0 after each stroke: the pen is lifted
    length = float(ends[-1])
    at = (np.arange(points) + 0.5) * length / points
    which = np.searchsorted(ends, at, side="right")
    step = np.concatenate(steps)[which]
    part = 1.0 - (ends[which] - at) / step
    following = np.minimum(which + 1, len(ink) - 1)
    spots = ink[which] + part[:, None] * (ink[following] - ink[which])
    return (spots - (low + high) / 2) / scale, length / scale
