"""Sample the clients of round t. The result depends on the seed and t only, so resuming needs no replay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedopt import rng

Sampler = Callable[[int, int, int, int], list[int]]  # (seed, t, population, cohort) -> positions


def uniform(seed: int, t: int, population: int, cohort: int) -> list[int]:
    """Sample without replacement within a round, and independently across rounds."""
    chosen = rng.generator(seed, "cohort", t).choice(population, size=cohort, replace=False)
    return [int(i) for i in chosen]


def as_run(seed: int, t: int, population: int, cohort: int) -> list[int]:
    """Sample as the authors' code: a Lehmer generator yields a seed per round; clients are sorted by id.

    The paper's runs used seed 1.

    >>> as_run(1, 0, 500, 10)
    [410, 254, 310, 381, 147, 25, 137, 22, 112, 207]
    """
    modulus = 2**31 - 1
    start = int(np.random.RandomState(seed).randint(1, modulus - 1))  # noqa: NPY002 - their generator
    round_seed = pow(16807, t, modulus) * start % modulus
    chosen = np.random.RandomState(round_seed).choice(population, size=cohort, replace=False)  # noqa: NPY002
    return [int(i) for i in chosen]


SAMPLERS: dict[str, Sampler] = {"uniform": uniform, "as_run": as_run}


def longest_first(cohort: list[int], sizes: NDArray[np.int64]) -> list[int]:
    """Sort a cohort by size, so that no worker waits for a large client that starts late.

    Clients are trained and summed in this order. It depends on the cohort and the data only.
    """
    return sorted(cohort, key=lambda i: -int(sizes[i]))
