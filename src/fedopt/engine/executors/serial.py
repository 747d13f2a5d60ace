"""The `serial` executor: every job runs in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.executors.base import BlockResult, Kept, nothing_kept
from fedopt.engine.executors.blocks import train_by_client
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Job, Worker
from fedopt.files import Log


class Serial:
    """Runs every job in this process."""

    fallback_reason = ""
    is_started = True

    def report_to(self, log: Log) -> None:
        pass

    def start(self) -> None:
        pass

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._worker = Worker(problem, federation, sample)
        self._returned = len(self._worker.algorithm.returns)

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        return train_by_client(self, jobs, sent, kept, self._returned)

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        for job in jobs:
            yield self._worker.run(job, sent, kept(job.client) if isinstance(job, ClientJob) else None)

    def close(self) -> None:
        pass
