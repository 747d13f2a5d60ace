"""Our engine at the work: rounds on one process per core, as `fedopt run` runs them."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from fedopt.algorithms.base import Vector
from fedopt.bench.clock import Spent, clocked, spent
from fedopt.bench.memory import Peak
from fedopt.bench.work import SEED, Work
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors.processes import Processes
from fedopt.engine.round import Setting, own, run_round
from fedopt.engine.worker import single_thread
from fedopt.errors import RunError


class Timed(NamedTuple):
    """A round of ours."""

    seconds: float
    spent: Spent


def _everyone(seed: int, t: int, population: int, cohort: int) -> list[int]:
    return list(range(population))


class Ours:
    """The engine with its workers started and one round done; close it when all is measured."""

    def __init__(self, work: Work, workers: int) -> None:
        self._work = work
        self.workers = workers
        problem = clocked(work.problem, work.directory)
        self._executor = Processes(workers)
        try:
            federation = problem.federation()
            self._executor.load(problem, federation, ())
            algorithm = problem.algorithm()
            self._setting = Setting(
                algorithm=algorithm,
                executor=self._executor,
                clients=federation.train,
                sampler=_everyone,
                cohort=len(work.examples),
                seed=SEED,
                table=MemoryTable(),
            )
            self._state = own(self._setting, algorithm.init(work.x))
            self._t = 0
            with Peak(os.getpid(), only=[os.getpid(), *self._executor.pids]) as peak:
                self.round()
        except BaseException:
            self.close()
            raise
        self.first_x: Vector = self._state.x.clone()
        self.megabytes = peak.megabytes

    def round(self) -> Timed:
        """One more round from where the last one ended."""
        with single_thread():
            start = time.perf_counter()
            self._state, report = run_round(
                self._setting, self._state, self._t, self._work.client_lr, 1.0, in_place=True
            )
            seconds = time.perf_counter() - start
        if report.clients != len(self._work.examples):
            raise RunError(
                f"{self._work.task}: only {report.clients} of {len(self._work.examples)} clients gave a "
                "finite update; what was measured is not a round"
            )
        self._t += 1
        return Timed(seconds, spent(self._work.directory, self._t - 1))

    def close(self) -> None:
        self._executor.close()
