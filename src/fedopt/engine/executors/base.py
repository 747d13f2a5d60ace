"""Where clients run. An executor is an ordered map: jobs in, results out in the order of the jobs.

`serial` runs them in this process. `processes` (in `processes.py`) runs them in workers of one thread
each. Both call `Runner.run`, so they give the same numbers to the bit. `vectorised` (in `vectorised.py`)
runs many at once on a device; its numbers are the same up to rounding, and a run records that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Job, Runner

Kept = Callable[[int], tuple[Vector, ...] | None]  # what the client at a position kept from before


def nothing_kept(index: int) -> None:
    return None


class Executor(Protocol):
    """Runs jobs for one problem after another."""

    @property
    def fallback_reason(self) -> str:
        """Why the loaded problem runs in a slower way than the executor is made for; empty if it does not."""

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        """Prepare for this problem.

        `federation` is the problem's data, opened in this process; worker processes open their own.
        `sample` holds the examples of `SampleJob`.
        """

    def share(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        """The vectors in memory of which clients see every change, so that sending them takes no copy."""

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        """Results in the order of `jobs`; the vectors of one are valid until the next is asked for."""

    def close(self) -> None:
        """End what was started."""


class Serial:
    """Runs every job in this process, one after the other."""

    fallback_reason = ""

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._runner = Runner(problem, federation, sample)

    def share(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return vectors

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        for job in jobs:
            yield self._runner.run(job, sent, kept(job.client) if isinstance(job, ClientJob) else None)

    def close(self) -> None:
        pass
