"""Sampling of cohorts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import small
from splits import from_arrays

from fedopt.engine.sampling import SAMPLERS, as_run, longest_first, uniform


def test_uniform_sampling_is_without_replacement_and_uniform():
    n, k, rounds = 20, 5, 4000
    cohorts = [uniform(11, t, n, k) for t in range(rounds)]
    assert all(len(set(cohort)) == k and set(cohort) <= set(range(n)) for cohort in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=n)
    p = k / n
    statistic = ((counts - rounds * p) ** 2).sum() / (rounds * p * (1 - p)) * (n - 1) / n
    assert 4.91 < statistic < 43.8, "chi-square with 19 degrees of freedom: 0.05 % and 99.9 %"


def test_rounds_are_sampled_independently():
    """|S_t and S_{t+1} in common| is hypergeometric: mean k^2/N = 1.25, variance 0.740."""
    n, k, rounds = 20, 5, 4000
    cohorts = [set(uniform(12, t, n, k)) for t in range(rounds + 1)]
    common = np.mean([len(a & b) for a, b in zip(cohorts, cohorts[1:], strict=False)])
    assert abs(common - 1.25) < 4 * math.sqrt(0.740 / rounds)
    assert len({frozenset(cohort) for cohort in cohorts}) > 3000


@pytest.mark.parametrize("name", SAMPLERS)
def test_sample_of_a_round_does_not_depend_on_earlier_calls(name: str):
    sampler = SAMPLERS[name]
    forward = [sampler(5, t, 50, 7) for t in range(20)]
    assert [sampler(5, t, 50, 7) for t in reversed(range(20))] == forward[::-1]
    assert forward != [sampler(6, t, 50, 7) for t in range(20)]


AS_RUN = [  # the authors' sequence for seed 1, recorded from their generator
    (500, 0, [410, 254, 310, 381, 147, 25, 137, 22, 112, 207]),
    (500, 1, [461, 105, 438, 5, 437, 308, 146, 6, 21, 355]),
    (3400, 0, [898, 2724, 3285, 2302, 3181, 1947, 142, 3103, 1777, 3098]),
    (715, 0, [197, 651, 377, 206, 561, 662, 526, 73, 121, 382]),
]


@pytest.mark.parametrize(("population", "t", "cohort"), AS_RUN)
def test_as_run_sampling_equals_the_authors_sequence(population: int, t: int, cohort: list[int]):
    assert as_run(1, t, population, 10) == cohort


def test_positions_refer_to_ids_sorted_as_strings():
    """In the authors' code, the first three of 500 clients in round 0 are '468', '327' and '378'."""
    split = from_arrays({str(i): [np.zeros(1), np.zeros(1)] for i in range(500)})
    assert [split.ids[i] for i in as_run(1, 0, 500, 3)] == ["468", "327", "378"]


def test_cohort_depends_on_the_seed():
    first, again, other = ([uniform(s, t, 100, 10) for t in range(5)] for s in (1, 1, 2))
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_longest_client_comes_first():
    cohort = uniform(3, 0, 24, 10)
    by_size = sorted(range(24), key=lambda i: -small.sizes(24)[i])
    assert longest_first(cohort, small.sizes(24)) == [i for i in by_size if i in cohort]
