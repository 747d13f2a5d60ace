"""The executor protocol: train the clients of a round in blocks, and evaluate the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, ClientReport, Job
from fedopt.files import Log

Kept = Callable[[int], tuple[Vector, ...] | None]  # returns the vectors that the client at a position kept


def nothing_kept(client: int) -> None:
    return None


class BlockResult(NamedTuple):
    """The trained clients of a block, in cohort order, and the weighted sum of the vectors they return.

    A client without a batch, or with a non-finite update, is not part of the sum.
    """

    reports: list[ClientReport]
    total: BlockSum
    kept: dict[int, tuple[Vector, ...]]  # the vectors that each client keeps, by its position


class RoundJobs(NamedTuple):
    """The clients of a round of one run, and what they receive."""

    seed: int  # of the run
    jobs: Sequence[ClientJob]
    sent: tuple[Vector, ...]
    kept: Kept


class Executor(Protocol):
    """Runs jobs for one problem after another."""

    @property
    def fallback_reason(self) -> str:
        """Why clients of the loaded problem are trained one after the other; empty by default."""

    @property
    def is_started(self) -> bool:
        """Whether the executor can run jobs without starting worker processes."""

    def report_to(self, log: Log) -> None:
        """Send messages about workers, such as one that was lost, to `log`."""

    def start(self) -> None:
        """Start the workers, if any, without waiting for them. `load` does this too."""

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        """Prepare for a problem.

        `federation` is the problem's data, opened in this process; worker processes open their own.
        `sample` holds the examples of `SampleJob`.
        """

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        """Train clients. Yield the results of blocks of clients, in the order of `jobs`.

        The clients of a block depend on the problem and on `jobs` only, because the order of summation is
        part of the result.
        """

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        """Run single jobs, such as evaluations. Yield results in the order of `jobs`.

        The vectors of a result are valid until the next one.
        """

    def close(self) -> None:
        """Stop all workers."""
