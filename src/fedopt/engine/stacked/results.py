"""The result of a trained stack: a report for each client, and one weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedopt.algorithms.base import ClientResult, Vector
from fedopt.algorithms.state import all_finite
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.stacked.blocks import BlockJobs, BlockPart, tensor_like
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
    counts: NDArray[np.floating],
    losses: NDArray[np.float64],
    result: ClientResult,
    weighting: str,
) -> StackedBlock:
    """Return the reports of all jobs and the sum of the finite clients.

    `counts`, `losses` and `result` are those of the columns of the block.
    """
    jobs, chosen = block.jobs, part.chosen
    examples = counts.sum(0).astype(np.int64).tolist()
    weights = _weights(part, weighting, examples)
    total, is_finite = _sum_finite(weights, losses, result)
    reports = [unchanged(job.client) for job in jobs]
    columns = zip(chosen, weights, examples, losses.tolist(), is_finite, strict=False)
    for i, weight, processed, loss, finite in columns:
        reports[i] = ClientReport(jobs[i].client, weight, part.batches.steps[i], processed, loss, finite)
    kept = {
        jobs[i].client: tuple(v[column].cpu() for v in result.keeps)
        for column, i in enumerate(chosen)
        if result.keeps and is_finite[column]
    }
    return StackedBlock(reports, total, kept)


def _sum_finite(
    weights: Sequence[float], losses: NDArray[np.float64], result: ClientResult
) -> tuple[BlockSum, list[bool]]:
    """Return the weighted sum of the finite clients, and whether each client is finite.

    The first rows belong to the clients. The rows after them have no weight.
    """
    sums = _weighted_sums(weights, result.returns)
    # A finite sum proves that all its terms are finite. It is much smaller than they are.
    if not (np.isfinite(losses).all() and all(map(all_finite, (*sums, *result.keeps)))):
        is_finite = np.isfinite(losses)
        for vector in result.returns + result.keeps:
            is_finite &= torch.isfinite(vector).all(1).cpu().numpy()
        finite: list[bool] = is_finite[: len(weights)].tolist()
        mask = torch.from_numpy(is_finite).to(result.returns[0].device)[:, None]
        weights = [weight if flag else 0.0 for weight, flag in zip(weights, finite, strict=True)]
        sums = _weighted_sums(weights, [torch.where(mask, v, 0) for v in result.returns])
    else:
        finite = [True] * len(weights)
    return BlockSum.from_vectors(sums, sum(weights), sum(finite)), finite


def _weighted_sums(weights: Sequence[float], stacks: Sequence[Vector]) -> list[Vector]:
    factors = tensor_like([*weights, *[0.0] * (len(stacks[0]) - len(weights))], stacks[0])
    return [(factors @ stack).cpu() for stack in stacks]


def _weights(part: BlockPart, weighting: str, processed: Sequence[int]) -> list[float]:
    """Return the weight of each chosen client in the mean."""
    batches, chosen = part.batches, part.chosen
    weights: dict[str, Callable[[], Sequence[int]]] = {
        "examples": lambda: [batches.examples[i] for i in chosen],
        "uniform": lambda: [1] * len(chosen),
        "processed": lambda: processed[: len(chosen)],
        "tokens": lambda: [batches.tokens(i) for i in chosen],
    }
    return list(map(float, weights[weighting]()))
