"""Evaluate a model: on a fixed sample of the test set during training, on every client afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

import numpy as np

from fedopt import rng
from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Split
from fedopt.engine.executors.base import Executor
from fedopt.engine.model_evaluation import EVAL_BATCH, EvaluationSums
from fedopt.engine.torch_state import kept_generators
from fedopt.engine.worker import ClientsJob, SampleJob, SplitJob

LONG_INTERVAL = 50  # rounds between evaluations of a long run
LAST_INTERVAL = 10  # in the last 100 rounds
MAX_CLIENTS = 64  # of one evaluation job
_SHARD = 5 * EVAL_BATCH
_numbers = count(1)  # of evaluations


def sample_size(split: Split, requested: int) -> int:
    """Return the number of examples in an evaluation sample. A request for 0 means all examples."""
    total = int(split.sizes.sum())
    return min(requested, total) if requested else total


def fixed_sample(split: Split, examples: int) -> Arrays:
    """Return `examples` random examples of the split. All runs use the same examples, whatever their seed."""
    total = int(split.sizes.sum())
    if examples == total:
        return split.gather(np.arange(total))
    bunch = split.sample_block if 2 * examples <= total else 1
    chosen = rng.generator("evaluation sample").choice(
        total // bunch, size=-(-examples // bunch), replace=False
    )
    positions = (chosen[:, None] * bunch + np.arange(bunch)).ravel()
    return split.gather(positions[:examples])


def evaluate_sample(
    executor: Executor, x: Vector, examples: int, statistics: Vector | None = None
) -> dict[str, float]:
    """Return loss and metrics on the evaluation sample. `statistics` are running statistics of the model."""
    number = next(_numbers)
    jobs = [SampleJob(a, min(a + _SHARD, examples), number) for a in range(0, examples, _SHARD)]
    with kept_generators():
        return means(sums for sums, _ in executor.map(jobs, _sent(x, statistics)))


def evaluate_clients(
    executor: Executor,
    x: Vector,
    name: str,
    split: Split,
    statistics: Vector | None = None,
    own_statistics: Callable[[int], Vector | None] = lambda client: None,
    clients: Sequence[int] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[EvaluationSums]:
    """Return the sums of each client of a split. Their `means` are the metrics over all examples.

    Args:
        executor: an executor that has loaded the problem.
        x: the model.
        name: the name of the split in the federation.
        split: the split.
        statistics: running statistics of the model.
        own_statistics: returns the running statistics of a client that has its own, else None.
        clients: the clients to evaluate, in ascending order; by default all.
        on_progress: called with the number of evaluated clients.
    """
    number = next(_numbers)
    chosen = range(len(split.ids)) if clients is None else clients
    sums: dict[int, EvaluationSums] = {}
    for index in chosen:
        own = own_statistics(index)
        if own is not None:
            sums[index], _ = next(iter(executor.map([SplitJob(name, index, number)], (x, own))))
            on_progress(len(sums))
    blocks = _blocks_of_clients(split, [index for index in chosen if index not in sums])
    jobs = [ClientsJob(name, block, number) for block in blocks]
    for job, (values, _) in zip(jobs, executor.map(jobs, _sent(x, statistics)), strict=True):
        sums |= zip(job.clients, values, strict=True)
        on_progress(len(sums))
    return [sums[index] for index in chosen]


def _blocks_of_clients(split: Split, clients: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield clients in groups with enough examples to fill batches. The groups depend on the data only."""
    block: list[int] = []
    examples = 0
    for client in clients:
        block.append(client)
        examples += int(split.sizes[client])
        if examples >= _SHARD or len(block) == MAX_CLIENTS:
            yield tuple(block)
            block, examples = [], 0
    if block:
        yield tuple(block)


def _sent(x: Vector, statistics: Vector | None) -> tuple[Vector, ...]:
    return (x,) if statistics is None else (x, statistics)


def means(parts: Iterable[EvaluationSums]) -> dict[str, float]:
    """Add the sums in order and divide: the loss first, then each metric."""
    examples, loss = 0, 0.0
    totals: dict[str, tuple[float, float]] = {}
    for part in parts:
        examples, loss = examples + part.examples, loss + part.loss
        for name, (numerator, denominator) in part.metrics.items():
            a, b = totals.get(name, (0.0, 0.0))
            totals[name] = (a + numerator, b + denominator)
    metrics = {name: a / b if b else float("nan") for name, (a, b) in totals.items()}
    return {"loss": loss / examples, **metrics}


def default_interval(rounds: int) -> int:
    """Return the number of rounds between evaluations that is used if `eval.every` is not set.

    A short run is evaluated about twenty times, a long one every 50 rounds. The intervals of short runs are
    powers of two, so a run that is extended has all evaluations of a run of its length.

    >>> [default_interval(rounds) for rounds in (8, 20, 40, 100, 500, 1500)]
    [1, 1, 2, 8, 32, 50]
    """
    twentieth = -(-rounds // 20)
    return min(LONG_INTERVAL, 1 << (twentieth - 1).bit_length())


def is_evaluated(round: int, rounds: int, every: int, last_every: int) -> bool:
    """Return whether the model after `round` rounds is evaluated in a run of `rounds`.

    Args:
        round: 0 is the model before training; it is evaluated, like that after the last round.
        rounds: the number of rounds.
        every: the interval.
        last_every: the interval in the last 100 rounds, over which the paper averages.

    Returns:
        Whether it is evaluated.

    Examples:
        >>> [r for r in range(301) if is_evaluated(r, 300, 100, 25)]
        [0, 100, 200, 225, 250, 275, 300]
    """
    if round in (0, rounds) or round % every == 0:
        return True
    return rounds - round < 100 and (rounds - round) % last_every == 0
