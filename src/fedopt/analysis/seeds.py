"""Several seeds of one configuration: their mean with its 95 % interval, and whether two methods differ.

Intervals are Student's t, because a handful of seeds is too few for the normal distribution: with five
seeds its 1.96 would be 2.78.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from fedopt.errors import UserError
from fedopt.runs.records import RunRecord, flatten, labels

CONFIDENCE = 0.95
MOST = 1000  # seeds of one command
NOT_THE_CONFIGURATION = ("seed", "rounds")  # they differ between runs of one group


class Interval(NamedTuple):
    """A mean and half the width of its 95 % interval."""

    mean: float
    half: float | None  # None with one value, which says nothing of the spread
    n: int


class Group(NamedTuple):
    """One configuration with its seeds in order."""

    label: str
    records: tuple[RunRecord, ...]


def parse_seeds(text: str) -> list[int]:
    """The seeds of `--seeds`: first:stop as Python's range has it, or a list.

    >>> parse_seeds("0:5"), parse_seeds("3,5,8")
    ([0, 1, 2, 3, 4], [3, 5, 8])
    """
    form = "write first:stop, such as 0:5 for the seeds 0 to 4, or a list, such as 3,5,8"
    try:
        if ":" in text:
            first, stop = (int(part) for part in text.split(":"))
            seeds: Sequence[int] = range(first, stop)
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds {text!r} is neither a range nor a list; {form}") from None
    if not seeds:
        raise UserError(f"--seeds {text!r} has no seeds; {form}")
    if len(seeds) > MOST:
        raise UserError(f"--seeds {text!r} has {len(seeds):,} seeds; allowed: 1 to {MOST}")
    outside = [seed for seed in seeds if not 0 <= seed < 2**32]
    if outside:
        raise UserError(f"--seeds {text!r} has the seed {outside[0]}; allowed: 0 to {2**32 - 1}")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {text!r} names a seed twice, which would be the same run")
    return list(seeds)


def interval(values: Sequence[float]) -> Interval:
    """The mean of `values` and half its 95 % interval, t_{n-1} s / sqrt(n).

    >>> mean, half, n = interval([1.0, 2.0, 3.0])  # t_2 = 4.3027, s = 1
    >>> mean, round(half, 4), n
    (2.0, 2.4841, 3)
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    n = len(values)
    if n == 1:
        return Interval(float(values[0]), None, 1)
    from scipy.special import stdtrit  # scipy.stats.t.ppf without the second that importing it takes

    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return Interval(fmean(values), quantile * stdev(values) / sqrt(n), n)


def within_noise(a: Mapping[int, float], b: Mapping[int, float]) -> bool | None:
    """Whether the 95 % interval of the difference of two methods holds 0; `a` and `b` map seeds to values.

    Paired by seed, because a seed fixes the cohorts and the initial model of both. None with fewer than
    two common seeds.
    """
    common = sorted(a.keys() & b.keys())
    if len(common) < 2:
        return None
    difference = interval([a[seed] - b[seed] for seed in common])
    assert difference.half is not None
    return abs(difference.mean) <= difference.half


def groups(records: Sequence[RunRecord]) -> list[Group]:
    """The runs by configuration, seed and rounds aside, in order of first appearance.

    A second run of the same seed is the same numbers again, so it opens another group: no seed counts
    twice in a mean.
    """
    found: dict[tuple[str, int], dict[int, RunRecord]] = {}
    for record in records:
        configuration, at, seed = _configuration(record), 0, seed_of(record)
        while seed in found.get((configuration, at), {}):
            at += 1
        found.setdefault((configuration, at), {})[seed] = record
    members = [tuple(runs[seed] for seed in sorted(runs)) for runs in found.values()]
    names = labels([runs[0] for runs in members], left_out=NOT_THE_CONFIGURATION)
    return [Group(name, runs) for name, runs in zip(names, members, strict=True)]


def seed_of(record: RunRecord) -> int:
    """The run's seed, 0 where it says none."""
    seed = record.config.get("seed", record.info.get("seed"))
    return seed if isinstance(seed, int) else 0


def _configuration(record: RunRecord) -> str:
    flat = {key: value for key, value in flatten(record.config).items() if key not in NOT_THE_CONFIGURATION}
    words = {"task": record.info["task"], "algorithm": record.info["algorithm"], "data": record.data}
    return json.dumps([words, flat], sort_keys=True, default=str)
