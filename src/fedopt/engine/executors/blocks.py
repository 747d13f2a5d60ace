"""Train clients one by one and sum them in blocks, for executors that return single clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedopt.algorithms.base import Vector
from fedopt.engine.aggregate import BLOCK, BlockSum
from fedopt.engine.executors.base import BlockResult, Executor, Kept
from fedopt.engine.worker import ClientJob, ClientReport


def train_by_client(
    executor: Executor, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept, returned: int
) -> Iterator[BlockResult]:
    """Run the jobs with `executor.map`. `returned` is the number of vectors that a client returns."""
    results = executor.map(jobs, sent, kept)
    for start in range(0, len(jobs), BLOCK):
        block = BlockResult([], BlockSum(), {})
        for _ in jobs[start : start + BLOCK]:
            add_client(block, *next(results), returned)
        yield block


def add_client(block: BlockResult, report: ClientReport, vectors: tuple[Vector, ...], returned: int) -> None:
    """Add a client to its block. A client that took no step or is not finite is only reported."""
    block.reports.append(report)
    if not (report.steps and report.finite):
        return
    block.total.add(report.weight, vectors[:returned], report.rows)
    if len(vectors) > returned:
        block.kept[report.client] = tuple(v.clone() for v in vectors[returned:])
