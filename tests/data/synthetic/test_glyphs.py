"""The pen strokes of the characters."""

from __future__ import annotations

import numpy as np
import pytest

from fedopt.data.synthetic import glyphs


def test_glyphs_are_the_62_characters_in_label_order() -> None:
    assert glyphs.CHARACTERS == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert set(glyphs.GLYPHS) == set(glyphs.CHARACTERS)


def test_paths_have_the_expected_points_and_lengths() -> None:
    bar, bar_length = glyphs.sample(glyphs.path("50,0 50,100"), 4)
    np.testing.assert_allclose(bar, [[0, -0.375], [0, -0.125], [0, 0.125], [0, 0.375]], atol=1e-12)
    assert bar_length == pytest.approx(1.0)
    _, corner_length = glyphs.sample(glyphs.path("0,0 0,100 | 100,100"), 50)
    assert corner_length == pytest.approx(2.0)
    _, two_bars = glyphs.sample(glyphs.path("0,0 0,100 ; 100,0 100,100"), 50)
    assert two_bars == pytest.approx(2.0)  # the distance between the strokes does not count
    circle, circle_length = glyphs.sample(glyphs.path("50,0 0,50 50,100 100,50 50,0"), 60)
    assert circle_length == pytest.approx(np.pi, rel=0.02)
    np.testing.assert_allclose(np.hypot(*circle.T), 0.5, atol=0.02)
