"""The second implementation: server updates worked out by hand, and the interval of a difference."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from claims.agreement import _welch_difference
from claims.independent import Server


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("fedavg", 0.1),
        ("fedavgm", 0.1),
        ("fedadagrad", 0.1 / (sqrt(0.0001 + 0.01) + 0.01)),
        ("fedadam", 0.01 / (sqrt(0.99 * 0.0001 + 0.01 * 0.01) + 0.01)),
        ("fedyogi", 0.01 / (sqrt(0.0001 + 0.01 * 0.01) + 0.01)),
    ],
)
def test_first_step_of_each_server(algorithm: str, expected: float) -> None:
    """Algorithm 2 with Delta = 0.1, eta = 1, tau = 0.01 and v_{-1} = tau^2."""
    x = np.zeros((1, 1), np.float32)
    Server(algorithm, 1.0, 0.01, x).step(x, np.full((1, 1), 0.1, np.float32))
    assert x.item() == pytest.approx(expected, rel=1e-5)


def test_interval_of_a_difference_is_that_of_welch() -> None:
    """Variances 1 and 4, three values each: 2.94 degrees of freedom, whose 97.5 % quantile is 3.218."""
    interval = _welch_difference([1, 2, 3], [2, 4, 6])
    assert interval.mean == pytest.approx(-2)
    assert interval.half_width == pytest.approx(3.218 * sqrt(1 / 3 + 4 / 3), rel=1e-3)
