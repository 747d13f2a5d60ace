"""A run's data, opened once in a process and handed down to whatever needs it."""

from __future__ import annotations

from typing import NamedTuple

from fedopt.data import Arrays, Federation
from fedopt.engine.evaluate import fixed_sample, sample_size
from fedopt.engine.problem import Problem


class Opened(NamedTuple):
    """A federation, and what evaluations during training measure.

    It depends on the task and its data options, `eval.sample` and whether training is centralized, not on
    the seed or the algorithm: runs in one process may share it.
    """

    federation: Federation
    sample: Arrays


def open_data(problem: Problem, examples: int) -> Opened:
    """The federation of a problem with a sample of its test set (0: all of it).

    Whoever executes many runs in one process keeps the answer and hands it to `execute`.
    """
    federation = problem.federation()
    return Opened(federation, fixed_sample(federation.test, sample_size(federation.test, examples)))
