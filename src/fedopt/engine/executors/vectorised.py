"""The executors `vectorised` and `compiled`: the clients of a block train at once, as one stack.

The algorithm's client function runs unchanged on stacked vectors (`engine/stacked/`). A step of all clients
is one sequence of tensor operations. `vectorised` runs them one by one, on the CPU or another device;
`compiled` compiles them to machine code. Batches, augmentation and dropout are those of `serial`. The results
are equal up to rounding, because products of stacked matrices are summed in another order.

All blocks of a round have the same size, which depends on the problem and the cohort only. A block is trained
in one process, so the number of workers does not change results. A problem that cannot be stacked is trained
one client after the other; `fallback_reason` gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.executors.base import BlockResult, Kept, nothing_kept
from fedopt.engine.executors.blocks import add_client, train_by_client
from fedopt.engine.executors.devices import full_precision
from fedopt.engine.executors.together import RunRound
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.blocks import BlockJobs
from fedopt.engine.stacked.compiling import check_compiler
from fedopt.engine.stacked.worker import MAX_FLOATS, NotStackable, StackedWorker
from fedopt.engine.worker import ClientJob, ClientReport, Job
from fedopt.files import Log
from fedopt.models.sparse_rows import SparseRows


class Vectorised:
    """Trains blocks of clients on `device`.

    Args:
        compiles: whether steps are compiled to machine code.
        floats: the memory limit of a stack, in numbers.
    """

    is_started = True

    def __init__(self, device: str = "cpu", *, compiles: bool = False, floats: int = MAX_FLOATS) -> None:
        if compiles:
            check_compiler()
        self._device = device
        self._compiles = compiles
        self._floats = floats
        self._reason = ""  # of a block that could not be stacked

    @property
    def fallback_reason(self) -> str:
        return self._worker.plan.reason or self._reason

    def report_to(self, log: Log) -> None:
        pass

    def start(self) -> None:
        pass

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._reason = ""
        self._worker = StackedWorker(problem, federation, sample, self._device, self._compiles, self._floats)

    def share(self, x: Vector) -> Vector:
        return x.clone()

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        with full_precision():
            if self._worker.plan.reason:
                yield from train_by_client(self, jobs, sent, kept, len(self._worker.algorithm.returns))
                return
            for block, columns in self._worker.blocks(jobs):
                yield self._train_block(block, columns, sent, kept)

    def _train_block(
        self, jobs: Sequence[ClientJob], columns: int, sent: tuple[Vector, ...], kept: Kept
    ) -> BlockResult:
        try:
            return BlockResult(
                *self._worker.train_stack(jobs, columns, sent, [kept(job.client) for job in jobs])
            )
        except NotStackable as error:
            self._reason = str(error)
        block = BlockResult([], BlockSum(), {})
        for report, vectors in self.map(jobs, sent, kept):
            add_client(block, report, vectors, len(self._worker.algorithm.returns))
        return block

    def train_together(self, rounds: Sequence[RunRound]) -> list[list[BlockResult]]:
        """Train the clients of several runs. Return the blocks of each run, as `train` would yield them.

        Raise `NotStackable` if the clients cannot be trained together.
        """
        if self._worker.plan.reason:
            raise NotStackable(self._worker.plan.reason)
        results: list[list[BlockResult]] = [[] for _ in rounds]
        blocks = [
            (run, BlockJobs(seed, jobs, columns, work.sent, [kept(job.client) for job in jobs]))
            for run, (seed, work, kept) in enumerate(rounds)
            for jobs, columns in self._worker.blocks(work.jobs)
        ]
        with full_precision():
            trained = self._worker.train_blocks([block for _, block in blocks])
        for (run, _), result in zip(blocks, trained, strict=True):
            results[run].append(BlockResult(*result))
        return results

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        sent = self._to_device(sent)
        with full_precision():
            for job in jobs:
                vectors = kept(job.client) if isinstance(job, ClientJob) else None
                report, results = self._worker.run(job, sent, vectors and self._to_device(vectors))
                yield _to_cpu(report, results)

    def close(self) -> None:
        pass

    def _to_device(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return tuple(v.to(self._device) for v in vectors)


def _to_cpu(report: Any, vectors: tuple[Vector, ...]) -> tuple[Any, tuple[Vector, ...]]:
    if isinstance(report, ClientReport) and report.rows is not None:
        rows: SparseRows = report.rows
        report = report._replace(rows=rows._replace(rows=rows.rows.cpu()))
    return report, tuple(v.cpu() for v in vectors)
