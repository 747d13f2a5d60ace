"""CPU time of the work of clients, for estimates of the time that runs need."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedopt.algorithms import Round
from fedopt.engine.evaluate import fixed_sample, sample_size
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.torch_state import single_thread
from fedopt.engine.worker import ClientJob, SampleJob, Worker
from fedopt.errors import DiskError
from fedopt.runs.client_table import DiskTable
from fedopt.runs.prepare import RunRequest

_REPEATS, _SECONDS = 4, 1.0  # of a measurement: at least two, then more within this time


def time_client(request: RunRequest) -> float:
    """Measure the work of one client in a round: training, and writing what the client keeps.

    Args:
        request: the run. With the setting `client.steps`, its clients take this many steps.

    Returns:
        CPU seconds in this process with one thread.

    Examples:
        >>> time_client(RunRequest("synthetic_lr", "fedavg", {"client.steps": 2})) > 0
        True
    """
    problem = request.prepare().problem
    federation, algorithm, x = problem.federation(), problem.algorithm(), initial_vector(problem)
    worker, kept = Worker(problem, federation, ()), algorithm.keeps
    vectors = tuple(x if name == "x" else torch.zeros_like(x) for name in algorithm.sends)
    job = ClientJob(Round(0, 1e-3, 1.0, 1, len(federation.train.ids)), 0)

    def train() -> None:
        _, returned = worker.run(job, vectors, None)
        if kept:
            with suppress(OSError, DiskError), TemporaryDirectory() as directory:  # it may be full
                DiskTable(Path(directory), kept, 0).write(0, 0, returned[-len(kept) :])

    return _fastest(train)


def time_evaluation(request: RunRequest, examples: int) -> float:
    """Measure an evaluation on test examples.

    Args:
        request: the run.
        examples: number of test examples; all if there are fewer.

    Returns:
        CPU seconds for each example in this process with one thread.

    Examples:
        >>> time_evaluation(RunRequest("synthetic_lr"), 100) > 0
        True
    """
    problem = request.prepare().problem
    federation, x = problem.federation(), initial_vector(problem)
    count = sample_size(federation.test, examples)
    worker = Worker(problem, federation, fixed_sample(federation.test, count))
    return _fastest(lambda: worker.run(SampleJob(0, count), (x,), None)) / count


def _fastest(work: Callable[[], object]) -> float:
    """Return the smallest CPU time of several repetitions. The first ones take longer: memory is new."""
    times: list[float] = []
    with single_thread():
        while len(times) < 2 or (len(times) < _REPEATS and sum(times) < _SECONDS):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    return min(times)
