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
from contextlib import nullcontext
from functools import partial
from typing import Any

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.executors.base import BlockResult, Kept, RoundJobs, nothing_kept
from fedopt.engine.executors.block_worker import BlockReply, BlockWorker
from fedopt.engine.executors.blocks import train_by_client
from fedopt.engine.executors.devices import full_precision
from fedopt.engine.executors.processes import Processes
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.blocks import BlockJobs
from fedopt.engine.stacked.compiling import check_compiler
from fedopt.engine.stacked.worker import MAX_FLOATS, NotStackable
from fedopt.engine.worker import BlockJob, ClientJob, Job
from fedopt.files import Log


class Vectorised:
    """Trains blocks of clients on `device`.

    Args:
        compiles: whether steps are compiled to machine code.
        workers: the number of processes. With 1, blocks are trained in this process; with more, the blocks of
            a round are distributed over worker processes if there are several.
        floats: the memory limit of a stack, in numbers.
    """

    is_started = True

    def __init__(
        self, device: str = "cpu", *, compiles: bool = False, workers: int = 1, floats: int = MAX_FLOATS
    ) -> None:
        if compiles:
            check_compiler()
        self._build = partial(BlockWorker, device=device, compiles=compiles, floats=floats)
        self._workers = workers
        self._precision = nullcontext if device == "cpu" else full_precision
        self._pool: Processes | None = None
        self._reason = ""  # of a block that could not be stacked

    @property
    def fallback_reason(self) -> str:
        return self._worker.plan.reason or self._reason

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [] if self._pool is None else self._pool.pids

    def report_to(self, log: Log) -> None:
        pass

    def start(self) -> None:
        """Do nothing: worker processes are started when there are several blocks."""

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._close_pool()
        self._reason = ""
        self._loaded = problem, federation, sample
        self._worker = self._build(problem, federation, sample)

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        if self._worker.plan.reason:
            yield from train_by_client(self, jobs, sent, kept, len(self._worker.algorithm.returns))
            return
        blocks = [BlockJob(tuple(block), columns) for block, columns in self._worker.blocks(jobs)]
        if self._workers > 1 and len(blocks) > 1:
            pool = self._open_pool(max(block.columns for block in blocks))
            for reply, vectors in pool.map(blocks, sent, kept):
                assert isinstance(reply, BlockReply)
                self._reason = reply.reason or self._reason
                yield reply.result(vectors)
            return
        with self._precision():
            for block in blocks:
                rows = [kept(job.client) for job in block.jobs]
                result, reason = self._worker.train_block(block, sent, rows)
                self._reason = reason or self._reason
                yield result

    def _open_pool(self, columns: int) -> Processes:
        """Start the worker processes, once for a problem."""
        if self._pool is None:
            self._pool = Processes(self._workers, self._build, columns)
            self._pool.load(*self._loaded)
        return self._pool

    def train_together(self, rounds: Sequence[RoundJobs]) -> list[list[BlockResult]]:
        """Train the clients of several runs. Return the blocks of each run, as `train` would yield them.

        The runs have the same task, local work and client algorithm. They may differ in their seeds, rates
        and servers. The results of a run do not depend on the other runs. Raise `NotStackable` if the clients
        cannot be trained together.
        """
        if self._worker.plan.reason:
            raise NotStackable(self._worker.plan.reason)
        results: list[list[BlockResult]] = [[] for _ in rounds]
        blocks = [
            (run, BlockJobs(work.seed, jobs, columns, work.sent, [work.kept(job.client) for job in jobs]))
            for run, work in enumerate(rounds)
            for jobs, columns in self._worker.blocks(work.jobs)
        ]
        with self._precision():
            trained = self._worker.train_blocks([block for _, block in blocks])
        for (run, _), result in zip(blocks, trained, strict=True):
            results[run].append(BlockResult(*result))
        return results

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        with self._precision():
            for job in jobs:
                yield self._worker.run(job, sent, kept(job.client) if isinstance(job, ClientJob) else None)

    def close(self) -> None:
        self._close_pool()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
