"""Colours of heat map cells."""

from __future__ import annotations

import matplotlib
from matplotlib.colors import to_hex

PALETTE = "viridis"  # perceptually uniform and colour-blind safe
EQUAL_CONTRAST = 0.179  # luminance on which black and white have the same contrast


def cell_colours(position: float) -> tuple[str, str]:
    """Return the background at `position` (0 worst, 1 best), and black or white for the text on it."""
    red, green, blue, _ = matplotlib.colormaps[PALETTE](float(position))
    return to_hex((red, green, blue)), text_colour(red, green, blue)


def text_colour(red: float, green: float, blue: float) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) to a colour with components from 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if luminance > EQUAL_CONTRAST else "#fff"
