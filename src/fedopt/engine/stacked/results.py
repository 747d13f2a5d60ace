"""The result of a trained stack: a report for each client, and one weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from fedopt.algorithms.base import ClientResult, Vector
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.stacked.batches import ClientBatches
from fedopt.engine.stacked.blocks import BlockJobs, BlockPart
from fedopt.engine.worker import ClientJob, ClientReport


class StackedBlock(NamedTuple):
    """A trained block: reports in the order of its jobs, and the weighted sum of the finite clients."""

    reports: list[ClientReport]
    total: BlockSum
    kept: dict[int, tuple[Vector, ...]]  # the vectors that each client keeps, by its position


def unchanged(client: int) -> ClientReport:
    """Return the report of a client without a batch."""
    return ClientReport(client, 0.0, 0, 0, 0.0, True)


def no_batches(jobs: Sequence[ClientJob]) -> StackedBlock:
    """Return the result of a block in which no client has a batch."""
    return StackedBlock([unchanged(job.client) for job in jobs], BlockSum(), {})


def collect_block(
    block: BlockJobs,
    part: BlockPart,
    counts: Tensor,
    losses: Sequence[float],
    result: ClientResult,
    weighting: str,
) -> StackedBlock:
    """Return the reports of all jobs and the sum of the finite clients.

    `counts`, `losses` and `result` are those of the columns of the block.
    """
    jobs, chosen, batches = block.jobs, part.chosen, part.batches
    vectors = result.returns + result.keeps
    finite = torch.stack([torch.isfinite(v).all(1) for v in vectors]).all(0).tolist()
    examples = counts.sum(0).long().tolist()
    steps = (counts > 0).sum(0).tolist()
    reports = [unchanged(job.client) for job in jobs]
    summed = [False] * len(finite)
    for column, i in enumerate(chosen):
        summed[column] = finite[column] and isfinite(losses[column])
        reports[i] = ClientReport(
            jobs[i].client,
            _weight(batches, i, weighting, examples[column]),
            steps[column],
            examples[column],
            losses[column],
            summed[column],
        )
    weights = vectors[0].new_zeros(len(summed))
    weights[: len(chosen)] = weights.new_tensor([reports[i].weight for i in chosen])
    is_summed = torch.tensor(summed, device=weights.device)
    weights = torch.where(is_summed, weights, 0)
    sums = [weights @ torch.where(is_summed[:, None], v, 0) for v in result.returns]
    kept = {
        jobs[i].client: tuple(v[column].cpu() for v in result.keeps)
        for column, i in enumerate(chosen)
        if summed[column] and result.keeps
    }
    weight = sum(reports[i].weight for column, i in enumerate(chosen) if summed[column])
    return StackedBlock(reports, BlockSum.from_vectors([v.cpu() for v in sums], weight, sum(summed)), kept)


def _weight(batches: ClientBatches, i: int, weighting: str, processed: int) -> float:
    """Return the weight of client i of the block in the mean."""
    if weighting == "tokens":
        return float(batches.tokens(i))
    return float({"examples": batches.examples[i], "uniform": 1, "processed": processed}[weighting])
