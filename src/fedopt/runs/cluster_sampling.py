"""Estimate a metric of all clients from a random sample of clients."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

import numpy as np

from fedopt import rng

CONFIDENCE = 0.95


def choose_clients(population: int, count: int) -> list[int]:
    """Return `count` different clients in ascending order. Every call chooses the same ones."""
    draw = rng.generator("evaluated clients")
    return sorted(int(client) for client in draw.choice(population, size=count, replace=False))


def ratio_half_width(pairs: Sequence[tuple[float, float]], population: int) -> float | None:
    """Return the half-width of the 95 % interval of the sum of numerators over the sum of denominators.

    Each pair (a_i, b_i) belongs to one client of a simple random sample. This is the ratio estimator
    (Cochran, Sampling Techniques, chapter 6): the variance is (1 - n / N) s^2 / (n m^2), where s^2 is the
    variance of the residuals a_i - R b_i and m the mean denominator. Return None for fewer than two clients.
    """
    a, b = np.array(pairs, dtype=float).T
    n = len(a)
    if n < 2 or not b.sum():
        return None
    residuals = a - a.sum() / b.sum() * b
    variance = (1 - n / population) * (residuals @ residuals) / (n - 1) / (n * b.mean() ** 2)
    from scipy.special import stdtrit  # equals scipy.stats.t.ppf, but imports a second faster

    half_width = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sqrt(variance)
    return half_width if isfinite(half_width) else None
