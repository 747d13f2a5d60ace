"""Colours of heat map cells."""

from __future__ import annotations

from fedopt.reports.heatmaps import cell_colours


def test_colours_run_from_dark_to_bright() -> None:
    assert cell_colours(0.0)[0] == "#440154" and cell_colours(1.0)[0] == "#fde725"  # the ends of viridis


def test_text_on_a_cell_has_enough_contrast() -> None:
    """The contrast ratio of WCAG 2 is at least 4.5, computed here from its definition."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    for step in range(101):
        background, ink = cell_colours(step / 100)
        light, dark = sorted((luminance(background), 1.0 if ink == "#fff" else 0.0), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, background
