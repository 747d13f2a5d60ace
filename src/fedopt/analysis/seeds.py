"""Several seeds of one configuration: confidence intervals and the comparison of two methods.

Intervals use Student's t distribution because there are few seeds. With five seeds the quantile is 2.78
instead of 1.96.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from fedopt.analysis.labels import GROUPED_KEYS, configuration_labels
from fedopt.errors import ConfigError
from fedopt.formatting import shorten
from fedopt.runs.records import RunRecord, flatten

CONFIDENCE = 0.95
MAX_SEEDS = 1000  # of one command
FAILED = ("diverged", "failed")
INCOMPLETE = (*FAILED, "pruned", "unfinished")  # states of runs that are not done, worst first


class Interval(NamedTuple):
    """A mean and the half-width of its 95 % confidence interval."""

    mean: float
    half_width: float | None  # None for a single value
    n: int


class SeedGroup(NamedTuple):
    """The runs of one configuration, sorted by seed."""

    label: str
    records: tuple[RunRecord, ...]

    @property
    def seeds(self) -> list[int]:
        return [run_seed(record) for record in self.records]

    @property
    def state(self) -> str:
        """The worst state of the runs; "" if all are done."""
        states = {run_state(record) for record in self.records}
        return next((state for state in INCOMPLETE if state in states), "")

    @property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs that enter means: those that are done, or all if none is."""
        return tuple(record for record in self.records if record.status == "done") or self.records


def parse_seeds(text: str) -> list[int]:
    """Parse the value of `--seeds`: a range as in Python, or a list.

    >>> parse_seeds("0:5"), parse_seeds("3,5,8")
    ([0, 1, 2, 3, 4], [3, 5, 8])
    """
    seeds: Sequence[int] = ()
    problem = ""
    with suppress(ValueError):
        if ":" in text:
            first, stop = (int(part) for part in text.split(":"))
            seeds = range(first, stop)
        else:
            seeds = [int(part) for part in text.split(",")]
    if not seeds:
        problem = "has no seeds; write a range, such as 0:5 for the seeds 0 to 4, or a list, such as 3,5,8"
    elif len(seeds) > MAX_SEEDS:
        problem = f"has {len(seeds):,} seeds; allowed: 1 to {MAX_SEEDS}"
    elif invalid := [seed for seed in seeds if not 0 <= seed < 2**32]:
        problem = f"has the seed {invalid[0]}; allowed: 0 to {2**32 - 1}"
    elif len(set(seeds)) < len(seeds):
        problem = "has a seed twice; list each seed once"
    if problem:
        raise ConfigError(f"--seeds {shorten(repr(text))} {problem}", keys=["seeds"])
    return list(seeds)


def confidence_interval(values: Sequence[float]) -> Interval:
    """Return the mean of `values` and its 95 % interval: mean +- t_{n-1} s / sqrt(n).

    >>> mean, half_width, n = confidence_interval([1.0, 2.0, 3.0])  # t_2 = 4.3027, s = 1
    >>> mean, round(half_width, 4), n
    (2.0, 2.4841, 3)
    """
    if not values:
        raise ValueError("a confidence interval needs at least one value")
    n = len(values)
    if n == 1:
        return Interval(float(values[0]), None, 1)
    from scipy.special import stdtrit  # equals scipy.stats.t.ppf, but imports a second faster

    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return Interval(fmean(values), quantile * stdev(values) / sqrt(n), n)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Interval | None:
    """Return the mean of a - b over the common seeds with its 95 % interval; None without a common seed.

    `a` and `b` map seeds to values. They are paired by seed, because the seed fixes the cohorts and the
    initial model of both methods.
    """
    common = sorted(a.keys() & b.keys())
    return confidence_interval([a[seed] - b[seed] for seed in common]) if common else None


def is_noise(difference: Interval | None) -> bool | None:
    """Return whether the interval of a difference contains 0; None for fewer than two common seeds."""
    if difference is None or difference.half_width is None:
        return None
    return abs(difference.mean) <= difference.half_width


def group_seeds(records: Sequence[RunRecord]) -> list[SeedGroup]:
    """Group runs by configuration, ignoring seed and rounds, in order of first appearance.

    A repeated seed starts another group, so that no seed counts twice in a mean.
    """
    groups: dict[tuple[str, int], dict[int, RunRecord]] = {}
    for record in records:
        configuration, repetition, seed = configuration_key(record), 0, run_seed(record)
        while seed in groups.get((configuration, repetition), {}):
            repetition += 1
        groups.setdefault((configuration, repetition), {})[seed] = record
    members = [tuple(runs[seed] for seed in sorted(runs)) for runs in groups.values()]
    labels = configuration_labels([runs[0] for runs in members])
    return [SeedGroup(label, runs) for label, runs in zip(labels, members, strict=True)]


def run_seed(record: RunRecord) -> int:
    """Return the seed of a run, 0 if it is not recorded."""
    seed = record.config.get("seed", record.info.get("seed"))
    return seed if isinstance(seed, int) else 0


def run_state(record: RunRecord) -> str:
    """Return "" for a run that is done, else diverged, failed, pruned or unfinished.

    Runs that are running, were interrupted or killed are unfinished.
    """
    if record.status == "done":
        return ""
    return record.status if record.status in INCOMPLETE else "unfinished"


def configuration_key(record: RunRecord) -> str:
    """Return a string that is equal for runs that differ only in seed and rounds."""
    settings = {key: value for key, value in flatten(record.config).items() if key not in GROUPED_KEYS}
    identity = [record.info["task"], record.label, record.data, settings]
    return json.dumps(identity, sort_keys=True, default=str)
