"""Measuring a model: on a fixed sample of the test set during training, on every client afterwards."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedopt import rng
from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Split
from fedopt.engine.executors.base import Executor
from fedopt.engine.worker import EVAL_BATCH, Measured, SampleJob, SplitJob

_SHARD = 5 * EVAL_BATCH


def sample_size(split: Split, asked: int) -> int:
    """How many examples an evaluation sample has; asking for 0 means all."""
    total = int(split.sizes.sum())
    return min(asked, total) if asked else total


def fixed_sample(split: Split, examples: int) -> Arrays:
    """`examples` random examples of the split, the same in every run whatever its seed."""
    total = int(split.sizes.sum())
    if examples == total:
        return split.gather(np.arange(total))
    bunch = split.sample_block if 2 * examples <= total else 1
    chosen = rng.generator("evaluation sample").choice(
        total // bunch, size=-(-examples // bunch), replace=False
    )
    positions = (chosen[:, None] * bunch + np.arange(bunch)).ravel()
    return split.gather(positions[:examples])


def measure_sample(executor: Executor, x: Vector, examples: int) -> dict[str, float]:
    """Loss and metrics over the evaluation sample."""
    jobs = [SampleJob(a, min(a + _SHARD, examples)) for a in range(0, examples, _SHARD)]
    return means(measured for measured, _ in executor.map(jobs, (x,)))


def measure_clients(executor: Executor, x: Vector, split: str, clients: int) -> list[Measured]:
    """The sums of each client of a split; `means` of all of them is the metric over all examples."""
    jobs = [SplitJob(split, index) for index in range(clients)]
    return [measured for measured, _ in executor.map(jobs, (x,))]


def means(parts: Iterable[Measured]) -> dict[str, float]:
    """Sums of the parts in their order, divided: the loss first, then each metric."""
    examples, loss = 0, 0.0
    sums: dict[str, tuple[float, float]] = {}
    for part in parts:
        examples, loss = examples + part.examples, loss + part.loss
        for name, (above, below) in part.metrics.items():
            a, b = sums.get(name, (0.0, 0.0))
            sums[name] = (a + above, b + below)
    ratios = {name: above / below if below else float("nan") for name, (above, below) in sums.items()}
    return {"loss": loss / examples, **ratios}


def is_evaluated(round: int, rounds: int, every: int, last_every: int) -> bool:
    """Whether the model after `round` rounds is evaluated in a run of `rounds`.

    Round 0, the last one, every `every`-th, and more densely in the last 100, over which the paper takes
    its means.

    >>> [r for r in range(301) if is_evaluated(r, 300, 100, 25)]
    [0, 100, 200, 225, 250, 275, 300]
    """
    if round in (0, rounds) or round % every == 0:
        return True
    return rounds - round < 100 and (rounds - round) % last_every == 0
