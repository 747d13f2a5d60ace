"""A worker that trains whole blocks of clients, in this process or in a worker process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from fedopt.algorithms.base import Vector
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.executors.base import BlockResult
from fedopt.engine.executors.blocks import add_client
from fedopt.engine.stacked.worker import NotStackable, StackedWorker
from fedopt.engine.worker import BlockJob, ClientJob, ClientReport, Job

KeptRows = Sequence[tuple[Vector, ...] | None]  # the vectors that each client of a block kept


class BlockReply(NamedTuple):
    """The result of a block without its vectors: first the sums, then the vectors that clients keep."""

    reports: list[ClientReport]
    weight: float
    clients: int  # in the sums
    sums: int  # number of summed vectors
    kept: tuple[int, ...]  # the clients that keep vectors
    reason: str  # why the clients were trained one after the other; empty if they were not

    def result(self, vectors: Sequence[Vector]) -> BlockResult:
        """Return the block with copies of its vectors."""
        total = BlockSum.from_vectors([v.clone() for v in vectors[: self.sums]], self.weight, self.clients)
        rest = iter(vectors[self.sums :])
        each = (len(vectors) - self.sums) // max(len(self.kept), 1)
        kept = {client: tuple(v.clone() for v in islice(rest, each)) for client in self.kept}
        return BlockResult(self.reports, total, kept)


class BlockWorker(StackedWorker):
    """Trains a block as one stack, or its clients one after the other if they cannot be stacked.

    What happens to a block depends on the block only, so it is the same in every process.
    """

    def run(
        self,
        job: Job | BlockJob,
        sent: tuple[Vector, ...],
        kept: tuple[Vector, ...] | None,
        output: Vector | None = None,
    ) -> tuple[Any, tuple[Vector, ...]]:
        if not isinstance(job, BlockJob):
            return super().run(job, sent, kept, output)
        block, reason = self.train_block(job, sent, list(self._kept_rows(job, kept or ())))
        total, keeping = block.total, tuple(block.kept)
        sums = total.vectors()
        reply = BlockReply(block.reports, total.weight, total.count, len(sums), keeping, reason)
        return reply, (*sums, *(v for client in keeping for v in block.kept[client]))

    def _kept_rows(self, job: BlockJob, kept: tuple[Vector, ...]) -> Iterator[tuple[Vector, ...] | None]:
        """Yield the kept vectors of each client of the job."""
        rest = iter(kept)
        for has_kept in job.has_kept:
            yield tuple(islice(rest, len(self.algorithm.keeps))) if has_kept else None

    def train_block(self, job: BlockJob, sent: tuple[Vector, ...], kept: KeptRows) -> tuple[BlockResult, str]:
        """Return the result of a block, and why its clients were trained one after the other, if so."""
        try:
            return BlockResult(*self.train_stack(job.jobs, job.columns, sent, kept)), ""
        except NotStackable as error:
            return self._train_each(job.jobs, sent, kept), str(error)

    def _train_each(self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: KeptRows) -> BlockResult:
        block = BlockResult([], BlockSum(), {})
        for job, vectors in zip(jobs, kept, strict=True):
            report, results = super().run(job, sent, vectors)
            add_client(block, report, results, len(self.algorithm.returns))
        return block
