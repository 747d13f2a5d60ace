"""An executor that a trial starts alone with and that grows when cores become idle beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.executors.base import Executor, Kept, Serial, nothing_kept
from fedopt.engine.executors.processes import Processes
from fedopt.engine.problem import Problem
from fedopt.engine.worker import Job
from fedopt.errors import FedoptError

STARTING = 5.0  # seconds in which a worker has imported what it needs


class Elastic:
    """Serial until `widen`; some seconds later, when the workers are there, on several processes.

    All executors give the same numbers to the bit, so nothing but the time depends on when that is.
    """

    fallback_reason = ""

    def __init__(self) -> None:
        self._now: Executor = Serial()
        self._coming: Processes | None = None
        self._ready_at = 0.0

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._loaded = problem, federation, sample
        self._now.load(problem, federation, sample)

    def widen(self, workers: int) -> None:
        """Start workers beside the rounds that go on meanwhile."""
        if self._coming is None and self._now.__class__ is Serial:
            self._coming = Processes(workers)
            self._coming.start()
            self._ready_at = time.monotonic() + STARTING

    def share(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return self._now.share(vectors)

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        if self._coming is not None and time.monotonic() >= self._ready_at:
            self._switch(self._coming)
        return self._now.map(jobs, sent, kept)

    def _switch(self, coming: Processes) -> None:
        self._coming = None
        try:
            coming.load(*self._loaded)
            self._now = coming
        except (FedoptError, OSError):  # no memory for them: the trial goes on as it is
            coming.close()

    def close(self) -> None:
        if self._coming is not None:
            self._coming.close()
        self._now.close()
