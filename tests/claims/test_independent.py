"""The second implementation: updates worked out by hand, and the interval of a difference."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from claims.agreement import _welch_difference
from claims.independent import Array, Client, Scaffold, Server


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


class TwoClients:
    """The gradient is the mean of the inputs: 1 for a client with one example, 2 for one with three."""

    batch = 10
    clients = [
        Client(np.zeros(1, np.int64), np.full((count, 1), slope, np.float32), np.zeros(count))
        for count, slope in ((1, 1.0), (3, 2.0))
    ]

    def gradient(self, y: Array, inputs: Array, targets: Any) -> Array:
        return inputs.mean(0, keepdims=True)


def test_two_rounds_of_scaffold() -> None:
    """Delta c and Delta x are weighted by examples (1/4 and 3/4), as in the paper. All clients take part.

    Round 1: c = c_i = 0, so the changes are -0.1 and -0.2, and c_i+ = 1 and 2. Then c = 1/4 + 3/4 * 2.
    Round 2: the steps use 1 - 1 + 1.75 and 2 - 2 + 1.75, and c_i+ = c_i.
    """
    problem: Any = TwoClients()
    x, random = np.zeros((1, 1), np.float32), np.random.default_rng(0)
    scaffold = Scaffold(x)
    assert scaffold.mean_change(problem, x, [0, 1], 0.1, random).item() == pytest.approx(-0.175)
    assert scaffold.c.item() == pytest.approx(1.75)
    assert scaffold.mean_change(problem, x, [0, 1], 0.1, random).item() == pytest.approx(-0.175)
    assert [scaffold.own[client].item() for client in (0, 1)] == pytest.approx([1.0, 2.0])


def test_interval_of_a_difference_is_that_of_welch() -> None:
    """Variances 1 and 4, three values each: 2.94 degrees of freedom, whose 97.5 % quantile is 3.218."""
    interval = _welch_difference([1, 2, 3], [2, 4, 6])
    assert interval.mean == pytest.approx(-2)
    assert interval.half_width == pytest.approx(3.218 * sqrt(1 / 3 + 4 / 3), rel=1e-3)
