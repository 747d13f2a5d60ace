"""Estimates from a sample of clients. Intervals over seeds are tested in reports/test_seeds.py."""

from __future__ import annotations

import numpy as np
import pytest

from fedopt.intervals import ratio_half_width
from fedopt.runs.evaluation import choose_clients


def test_half_width_equals_the_value_computed_by_hand() -> None:
    """a = 1, 2, 6 and b = 2, 4, 6: R = 0.75, residuals -0.5, -1, 1.5, s^2 = 1.75, m = 4, n = 3 of N = 12."""
    variance = (1 - 3 / 12) * 1.75 / (3 * 16)
    expected = 4.302653 * variance**0.5  # Student's t for two degrees of freedom
    assert ratio_half_width([(1, 2), (2, 4), (6, 6)], 12) == pytest.approx(expected, rel=1e-6)


def test_about_95_percent_of_intervals_contain_the_true_value() -> None:
    draw = np.random.Generator(np.random.Philox(7))
    sizes = 1 + draw.poisson(30, size=2000)
    correct = draw.binomial(sizes, draw.beta(4, 4, size=2000))
    truth = correct.sum() / sizes.sum()
    hits = 0
    for _ in range(400):
        chosen = draw.choice(2000, 60, replace=False)
        half_width = ratio_half_width(list(zip(correct[chosen], sizes[chosen], strict=True)), 2000)
        assert half_width is not None
        hits += abs(correct[chosen].sum() / sizes[chosen].sum() - truth) <= half_width
    assert 0.92 <= hits / 400 <= 0.98  # three standard errors of 0.011


def test_one_client_has_no_interval_and_all_clients_have_no_error() -> None:
    assert ratio_half_width([(1, 2)], 5) is None
    assert ratio_half_width([(1, 2), (3, 4)], 2) == 0.0


def test_chosen_clients_are_different_sorted_and_repeatable() -> None:
    chosen = choose_clients(1000, 50)
    assert chosen == sorted(set(chosen)) == choose_clients(1000, 50) and len(chosen) == 50
    assert choose_clients(3, 3) == [0, 1, 2]
