"""Rounds of fedopt's engine on one executor, as in `fedopt run`."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import NamedTuple

from fedopt.algorithms.base import Vector
from fedopt.bench.memory import PeakMemory
from fedopt.bench.worker_times import WorkerTimes, read_times, with_timing
from fedopt.bench.workload import SEED, BenchmarkWorkload
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.loop import TrainingSetup, drive, run_round
from fedopt.errors import Diverged


class TimedRound(NamedTuple):
    """Duration of one round, and the time of its worker processes if it is recorded."""

    seconds: float
    workers: WorkerTimes | None


def _select_all(seed: int, t: int, population: int, cohort: int) -> list[int]:
    return list(range(population))


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
                sampler=_select_all,
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
