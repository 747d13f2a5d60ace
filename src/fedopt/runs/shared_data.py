"""A run's data, opened once in a process and handed down to whatever needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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


def with_open(problem: Problem, federation: Federation) -> Problem:
    """The problem with its federation open in this process; a worker that it is sent to opens its own."""
    return replace(problem, federation=_Open(federation, problem.federation))


@dataclass(frozen=True)
class _Open:
    federation: Federation
    open: Callable[[], Federation]

    def __call__(self) -> Federation:
        return self.federation

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.open,)


def _itself(function: Callable[[], Federation]) -> Callable[[], Federation]:
    return function
