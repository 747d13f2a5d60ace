"""Styles of lines: contrast and distinct styles."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from fedopt.algorithms import ALGORITHMS
from fedopt.reports.line_styles import ALGORITHM_STYLES, assign_styles

STYLE_SHEET = (files("fedopt.reports") / "templates" / "style.css").read_text()


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ALGORITHM_STYLES)
def test_colours_have_enough_contrast_with_the_light_and_the_dark_background(name: str) -> None:
    backgrounds = re.findall(r"--(?:page|card): (#[0-9a-f]{6});", STYLE_SHEET)
    assert min(map(luminance, backgrounds)) < 0.02 and max(map(luminance, backgrounds)) == 1
    for background in backgrounds:
        assert contrast(ALGORITHM_STYLES[name].colour, background) >= 3, background


def test_every_algorithm_has_a_style_of_its_own() -> None:
    assert set(ALGORITHMS) <= set(ALGORITHM_STYLES)
    styles = list(ALGORITHM_STYLES.values())
    for part in ("colour", "dash", "symbol"):
        assert len({getattr(style, part) for style in styles}) == len(styles)


def test_algorithms_keep_their_style_in_any_company() -> None:
    assert assign_styles(["fedavg", "fedadam"])[1] == assign_styles(["mine", "fedadam", "scaffold"])[1]


def test_lines_of_one_algorithm_have_different_styles() -> None:
    styles = assign_styles(["fedadam", "fedadam", "mine", "fedadam", "fedavg"])
    assert styles[0] == ALGORITHM_STYLES["fedadam"] and styles[4] == ALGORITHM_STYLES["fedavg"]
    assert len(set(styles)) == 5
    assert len(set(assign_styles(["mine"] * 12))) == 12
