"""The result of a trained stack: a report for each client, and one weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedopt.algorithms.base import ClientResult, Vector
from fedopt.engine.aggregate import BlockSum
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
    counts: NDArray[np.floating],
    losses: NDArray[np.float64],
    result: ClientResult,
    weighting: str,
) -> StackedBlock:
    """Return the reports of all jobs and the sum of the finite clients.

    `counts`, `losses` and `result` are those of the columns of the block.
    """
    jobs, chosen = block.jobs, part.chosen
    is_summed = np.isfinite(losses)
    for vector in result.returns + result.keeps:
        is_summed &= _finite_rows(vector)
    is_summed[len(chosen) :] = False
    examples = counts.sum(0).astype(np.int64).tolist()
    weights = _weights(part, weighting, examples)
    steps, finite = (counts > 0).sum(0).tolist(), is_summed.tolist()
    columns = list(zip(weights, steps, examples, losses.tolist(), finite, strict=True))
    reports = [unchanged(job.client) for job in jobs]
    for column, i in enumerate(chosen):
        reports[i] = ClientReport(jobs[i].client, *columns[column])
    return StackedBlock(
        reports,
        _weighted_sum(weights, is_summed, result.returns),
        {
            jobs[i].client: tuple(v[column].cpu() for v in result.keeps)
            for column, i in enumerate(chosen)
            if is_summed[column] and result.keeps
        },
    )


def _weighted_sum(
    weights: Sequence[float], is_summed: NDArray[np.bool_], vectors: Sequence[Vector]
) -> BlockSum:
    """Sum some of the rows of each stack."""
    chosen = [weight if flag else 0.0 for weight, flag in zip(weights, is_summed.tolist(), strict=True)]
    factors = torch.tensor(chosen, dtype=vectors[0].dtype, device=vectors[0].device)
    if not is_summed.all():  # zero times infinity would not be zero
        mask = torch.from_numpy(is_summed).to(factors.device)[:, None]
        vectors = [torch.where(mask, v, 0) for v in vectors]
    sums = [(factors @ v).cpu() for v in vectors]
    return BlockSum.from_vectors(sums, sum(chosen), int(is_summed.sum()))


def _finite_rows(stack: Vector) -> NDArray[np.bool_]:
    """Return whether each row is finite. A finite sum proves it in one pass."""
    finite: NDArray[np.bool_] = np.isfinite(stack.sum(1).cpu().numpy())
    return finite if finite.all() else torch.isfinite(stack).all(1).cpu().numpy()


def _weights(part: BlockPart, weighting: str, processed: Sequence[int]) -> list[float]:
    """Return the weight of the client of each column in the mean; 0 for columns without a client."""
    batches, chosen = part.batches, part.chosen
    weights: dict[str, Callable[[], Sequence[int]]] = {
        "examples": lambda: [batches.examples[i] for i in chosen],
        "uniform": lambda: [1] * len(chosen),
        "processed": lambda: processed[: len(chosen)],
        "tokens": lambda: [batches.tokens(i) for i in chosen],
    }
    return [*map(float, weights[weighting]()), *[0.0] * (len(processed) - len(chosen))]
