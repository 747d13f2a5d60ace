"""The executor protocol: an ordered map that takes jobs and returns their results in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.problem import Problem
from fedopt.engine.worker import Job

Kept = Callable[[int], tuple[Vector, ...] | None]  # returns the vectors that the client at a position kept


def nothing_kept(client: int) -> None:
    return None


class Executor(Protocol):
    """Runs jobs for one problem after another."""

    @property
    def fallback_reason(self) -> str:
        """Why clients of the loaded problem are trained one after the other; empty by default."""

    @property
    def is_started(self) -> bool:
        """Whether the executor can run jobs without starting worker processes."""

    def start(self) -> None:
        """Start the workers, if any, without waiting for them. `load` does this too."""

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        """Prepare for a problem.

        `federation` is the problem's data, opened in this process; worker processes open their own.
        `sample` holds the examples of `SampleJob`.
        """

    def share(self, x: Vector) -> Vector:
        """Copy the model to memory that the workers read directly, so that sending it takes no copy."""

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        """Yield results in the order of `jobs`. The vectors of a result are valid until the next one."""

    def close(self) -> None:
        """Stop all workers."""
