"""Confidence intervals, of means over seeds and of estimates from a sample of clients.

Intervals use Student's t distribution because there are few values. With five seeds the quantile is 2.78
instead of 1.96.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean and the half-width of its 95 % confidence interval."""

    mean: float
    half_width: float | None  # None for a single value
    n: int


def confidence_interval(values: Sequence[float]) -> Interval:
    """Return the mean of `values` and its 95 % interval: mean +- t_{n-1} s / sqrt(n).

    Args:
        values: one value or more, such as the results of several seeds.

    Returns:
        The mean, the half-width (None for one value) and the number of values.

    Examples:
        >>> mean, half_width, n = confidence_interval([1.0, 2.0, 3.0])  # t_2 = 4.3027, s = 1
        >>> mean, round(half_width, 4), n
        (2.0, 2.4841, 3)
    """
    if not values:
        raise ValueError("a confidence interval needs at least one value")
    n = len(values)
    if n == 1:
        return Interval(float(values[0]), None, 1)
    return Interval(fmean(values), _quantile(n) * stdev(values) / sqrt(n), n)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Interval | None:
    """Return the mean of a - b over the common seeds with its 95 % interval; None without a common seed.

    Values are paired by seed, because the seed fixes the cohorts and the initial model of both methods.

    Args:
        a: values by seed.
        b: the values that are subtracted, by seed.

    Returns:
        The interval of the differences.

    Examples:
        >>> paired_difference({0: 0.5, 1: 0.7}, {0: 0.25, 2: 0.6})
        Interval(mean=0.25, half_width=None, n=1)
    """
    common = sorted(a.keys() & b.keys())
    return confidence_interval([a[seed] - b[seed] for seed in common]) if common else None


def is_noise(difference: Interval | None) -> bool | None:
    """Return whether the interval of a difference contains 0; None for fewer than two common seeds.

    Args:
        difference: the result of `paired_difference`.

    Returns:
        Whether the difference may be noise, or None if that is unknown.

    Examples:
        >>> is_noise(Interval(0.1, 0.2, 3)), is_noise(Interval(0.3, 0.2, 3)), is_noise(Interval(0.3, None, 1))
        (True, False, None)
    """
    if difference is None or difference.half_width is None:
        return None
    return abs(difference.mean) <= difference.half_width


def ratio_half_width(pairs: Sequence[tuple[float, float]], population: int) -> float | None:
    """Return the half-width of the 95 % interval of the sum of numerators over the sum of denominators.

    Each pair (a_i, b_i) belongs to one client of a simple random sample. This is the ratio estimator
    (Cochran, Sampling Techniques, chapter 6): the variance is (1 - n / N) s^2 / (n m^2), where s^2 is the
    variance of the residuals a_i - R b_i and m the mean denominator. Return None for fewer than two clients.
    """
    n, total = len(pairs), sum(b for _, b in pairs)
    if n < 2 or not total:
        return None
    ratio = sum(a for a, _ in pairs) / total
    squares = sum((a - ratio * b) ** 2 for a, b in pairs) / (n - 1)
    half_width = _quantile(n) * sqrt((1 - n / population) * squares / n) / (total / n)
    return half_width if isfinite(half_width) else None


def _quantile(n: int) -> float:
    """Return the quantile of Student's t for a two-sided interval of n values."""
    from scipy.special import stdtrit  # equals scipy.stats.t.ppf, but imports a second faster

    return float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
