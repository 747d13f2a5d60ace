"""Rounds of fedopt's engine on one executor, as in `fedopt run`, and the time that its workers spend.

The engine calls `Problem.profile` around clients and passes, so the engine is the one of `fedopt run`.
A pass covers the model, the loss and autograd. Batches, local updates and messages are outside.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from fedopt.algorithms.base import Vector
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.loop import TrainingSetup, drive, run_round
from fedopt.engine.problem import Problem
from fedopt.errors import Diverged

from .memory import PeakMemory
from .workload import SEED, BenchmarkWorkload


class WorkerTimes(NamedTuple):
    """Seconds of one round, summed over all workers."""

    clients: float  # training of clients
    passes: float  # forward and backward passes, a part of `clients`


_pass_seconds = [0.0]  # of the client that this process trains


def with_timing(problem: Problem, directory: Path) -> Problem:
    """Return the problem with a hook that writes the times of each client to files in `directory`."""
    return replace(problem, profile=partial(_record, str(directory)))


@contextmanager
def _record(directory: str, section: str, t: int) -> Iterator[None]:
    if section == "client":
        _pass_seconds[0] = 0.0
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    if section == "pass":
        _pass_seconds[0] += seconds
    else:
        line = {"t": t, "client": seconds, "passes": _pass_seconds[0]}
        os.write(_open_log(directory), f"{json.dumps(line)}\n".encode())


@cache
def _open_log(directory: str) -> int:
    """Open the log of this process. It stays open, because short rounds would measure the opening."""
    return os.open(
        Path(directory) / f"times-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
    )


def read_times(directory: Path, t: int) -> WorkerTimes:
    """Sum the times that the workers recorded in round `t`."""
    lines = [
        line
        for file in directory.glob("times-*.jsonl")
        for line in map(json.loads, file.read_text().splitlines())
        if line["t"] == t
    ]
    return WorkerTimes(sum(line["client"] for line in lines), sum(line["passes"] for line in lines))


class TimedRound(NamedTuple):
    """Duration of one round, and the time of its worker processes if it is recorded."""

    seconds: float
    workers: WorkerTimes | None


class EngineRounds:
    """The engine with an opened executor. The constructor runs a first round, which is not timed.

    With `record_times`, the worker processes record how long they train clients and run the model.
    """

    def __init__(
        self,
        workload: BenchmarkWorkload,
        workers: int,
        executor: str = "processes",
        record_times: bool = True,
    ) -> None:
        self._workload = workload
        self.workers = workers
        self._record_times = record_times
        problem = with_timing(workload.problem, workload.directory) if record_times else workload.problem
        self._resources = ExitStack()
        self._executor = self._resources.enter_context(open_executor(ExecutorOptions(executor, workers)))
        try:
            federation = problem.federation()
            self._executor.load(problem, federation, ())
            algorithm = problem.algorithm()
            self._setup = TrainingSetup(
                algorithm=algorithm,
                executor=self._executor,
                clients=federation.train,
                sampler=lambda seed, t, population, cohort: list(range(population)),
                cohort=len(workload.examples),
                seed=SEED,
                table=MemoryTable(),
            )
            self._state = algorithm.init(workload.x)
            self._t = 0
            processes = [os.getpid(), *getattr(self._executor, "pids", ())]
            with PeakMemory(os.getpid(), only=processes) as peak:
                self.run_round()
        except BaseException:
            self.close()
            raise
        self.x_after_first_round: Vector = self._state.x.clone()
        self.peak_megabytes = peak.megabytes

    def run_round(self) -> TimedRound:
        """Run the next round from the current state."""
        loop = run_round(self._setup, self._state, self._t, self._workload.client_lr, 1.0)
        start = time.perf_counter()
        self._state, report = drive(loop, self._executor)
        seconds = time.perf_counter() - start
        if report.clients != len(self._workload.examples):
            raise Diverged(
                f"{self._workload.name}: only {report.clients} of {len(self._workload.examples)} clients "
                "returned a finite update, so the measurement is not valid",
                round=self._t + 1,
                clients=report.rejected,
            )
        self._t += 1
        times = read_times(self._workload.directory, self._t - 1) if self._record_times else None
        return TimedRound(seconds, times)

    def close(self) -> None:
        self._resources.close()
