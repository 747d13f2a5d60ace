"""The `processes` executor: worker processes with one thread each, and vectors in shared memory.

Results are returned in the order of the jobs. A job occupies a slot of shared memory from its dispatch until
its result has been used. The number of slots limits how far jobs run ahead, so memory does not grow with the
cohort.

A worker that dies, or stays stopped (see `stopped_processes`), is replaced, and its job runs again. The
result is the same, because it depends on the job only.
"""

from __future__ import annotations

import pickle
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

import torch

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.executors.base import BlockResult, Kept, nothing_kept
from fedopt.engine.executors.blocks import train_by_client
from fedopt.engine.executors.shared_vectors import SharedVectors, check_shared_memory, share, vector_bytes
from fedopt.engine.executors.worker_process import BuildWorker, WorkerProcess
from fedopt.engine.initial_model import initial_model
from fedopt.engine.open_files import allow_open_files
from fedopt.engine.problem import Problem
from fedopt.engine.stopped_processes import StoppedProcesses
from fedopt.engine.worker import BlockJob, ClientJob, Job, Worker
from fedopt.engine.worker_server import failed_start
from fedopt.errors import FedoptError, ModelError, WorkerError
from fedopt.files import Log

_MAX_DEATHS = 3  # of workers, on one job or during their start


class Processes:
    """Runs jobs in `workers` processes.

    Args:
        build: builds the worker that runs the jobs in a process.
        clients_per_job: the largest number of clients that a job trains.
    """

    fallback_reason = ""

    def __init__(self, workers: int, build: BuildWorker = Worker, clients_per_job: int = 1) -> None:
        self._count = workers
        self._build = build
        self._clients_per_job = clients_per_job
        self._workers: list[WorkerProcess] = []  # started with the first problem
        self._loaded: tuple[Any, ...] | None = None
        self._stopped = StoppedProcesses()

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [worker.pid for worker in self._workers]

    @property
    def is_started(self) -> bool:
        return bool(self._workers)

    def report_to(self, log: Log) -> None:
        pass

    def start(self) -> None:
        """Start the workers without waiting for them."""
        allow_open_files(self._count - len(self._workers))
        while len(self._workers) < self._count:
            self._workers.append(WorkerProcess())

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        try:
            pickle.dumps(replace(problem, fixed=None))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ModelError(
                f"worker processes cannot import part of this problem ({error}); define it at the top "
                "level of a module, or use executor='serial'",
                what="problem",
            ) from error
        self._drain()
        self.start()
        initial = initial_model(problem)
        statistics = 0 if initial.statistics is None else len(initial.statistics)
        d = max(len(initial.x), statistics)
        self._client_ids = federation.train.ids
        algorithm = problem.algorithm()
        self._keeps = len(algorithm.keeps) * self._clients_per_job
        self._returned = len(algorithm.returns)
        self._per_slot = self._returned + 2 * self._keeps  # kept before, returned, kept
        self._slots = 4 * len(self._workers)
        vectors = max(len(algorithm.sends), 2 if statistics else 1), self._slots * self._per_slot
        check_shared_memory(
            sum(vector_bytes(count, d) for count in vectors)
            + sum(array.nbytes for array in sample)
            + (problem.fixed.nbytes if problem.fixed is not None else 0)  # sent once for all workers
        )
        self._sent, self._shared = (SharedVectors(count, d) for count in vectors)
        shared_sample = tuple(share(torch.from_numpy(a)) for a in sample)
        self._loaded = (problem, shared_sample, self._build, self._sent, self._shared, self._keeps)
        with self._ended_by_interrupts():
            for index in range(len(self._workers)):
                self._send_problem(index)
            failures = [self._await_ready(index) for index in range(len(self._workers))]
        for failure in filter(None, failures):
            raise failure

    def _send_problem(self, index: int) -> None:
        try:
            self._workers[index].load(self._loaded)
        except OSError:  # the worker died since its last job
            self._replace(index)

    def _await_ready(self, index: int) -> FedoptError | None:
        """Wait until a worker has loaded the problem. Return the error if it could not."""
        for _ in range(_MAX_DEATHS):
            try:
                failure: FedoptError | None = self._workers[index].receive(self._stopped)[-1]
                return failure
            except (EOFError, OSError):
                exit_code = self._workers[index].end()
                if exit_code >= 0:
                    raise failed_start(f"with exit code {exit_code}", ", or executor='serial'") from None
                self._replace(index)  # killed by a signal
        raise WorkerError(
            f"worker processes were killed during their start {_MAX_DEATHS} times "
            f"({signal.Signals(-exit_code).name}), possibly out of memory; use fewer workers"
        )

    def _replace(self, index: int) -> None:
        """Replace a dead worker by a new one with the same problem."""
        self._workers[index].stop()
        self._workers[index] = WorkerProcess()
        with suppress(OSError):  # it may have died too, which the next message shows
            self._workers[index].load(self._loaded)

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        return train_by_client(self, jobs, sent, kept, self._returned)

    def map(
        self, jobs: Sequence[Job | BlockJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        self._drain()
        self._sent.write(0, sent)
        self._sent_lengths = tuple(map(len, sent))
        waiting = deque(range(len(jobs)))  # a cohort is ordered by size: the largest clients start first
        replies: dict[int, tuple[Any, tuple[int, ...]]] = {}
        deaths: dict[int, int] = {}

        def dispatch_jobs() -> None:
            for worker in self._workers:
                if worker.job is None and waiting and waiting[0] < position + self._slots:
                    number = waiting.popleft()
                    self._dispatch(worker, number, jobs[number], kept)

        for position in range(len(jobs)):
            with self._ended_by_interrupts():
                dispatch_jobs()
                while position not in replies:
                    for number in self._collect(replies):
                        deaths[number] = deaths.get(number, 0) + 1
                        if deaths[number] == _MAX_DEATHS:
                            raise self._repeated_death(jobs[number])
                        waiting.appendleft(number)
                    dispatch_jobs()  # workers continue while the caller uses the result
            reply, lengths = replies.pop(position)
            yield reply, self._shared.read(self._first(position) + self._keeps, lengths)

    @contextmanager
    def _ended_by_interrupts(self) -> Iterator[None]:
        """End all workers if the block is interrupted, because a message may be incomplete."""
        try:
            yield
        except KeyboardInterrupt:
            for worker in self._workers:
                worker.process.kill()
            self._workers.clear()
            raise

    def _repeated_death(self, job: Job | BlockJob) -> WorkerError:
        client, round, where = None, None, "an evaluation"
        first = job.jobs[0] if isinstance(job, BlockJob) else job
        if isinstance(first, ClientJob):
            client, round = self._client_ids[first.client], first.round.t + 1
            where = f"{'the block of ' if first is not job else ''}client {client!r} in round {round}"
        text = f"a worker died {_MAX_DEATHS} times on {where}, possibly out of memory"
        return WorkerError(f"{text}; use fewer workers", client=client, round=round)

    def _first(self, number: int) -> int:
        """Return the index of a job's first vector. Slots are used in turn."""
        return number % self._slots * self._per_slot

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _dispatch(self, worker: WorkerProcess, number: int, job: Job | BlockJob, kept: Kept) -> None:
        job, before = _with_kept(job, kept)
        first = self._first(number)
        if before is not None:
            self._shared.write(first, before)
        worker.job = number
        try:
            lengths = None if before is None else tuple(map(len, before))
            worker.connection.send((number, job, first, lengths, self._sent_lengths))
        except OSError:
            pass  # the worker has died; _collect detects it, and the job runs again

    def _collect(self, replies: dict[int, tuple[Any, tuple[int, ...]]]) -> list[int]:
        """Wait for workers, store finished jobs and replace dead workers. Return their jobs."""
        lost = []
        busy = {worker.connection: i for i, worker in enumerate(self._workers) if worker.job is not None}
        ready = wait(list(busy), timeout=1.0)
        self._stopped.kill_stopped(self._workers[index].pid for index in busy.values())
        for connection in ready:
            index = busy[connection]  # type: ignore[index]
            worker = self._workers[index]
            try:
                number, reply, lengths, failure = worker.connection.recv()
            except (EOFError, OSError):
                assert worker.job is not None
                lost.append(worker.job)
                self._replace(index)
                continue
            if number is not None:  # None: a new worker is ready
                worker.job = None
                replies[number] = (reply, lengths)
            if failure is not None:
                raise failure
        return lost

    def _drain(self) -> None:
        """Wait for jobs of an earlier map that ended early, so that all workers are idle."""
        for index, worker in enumerate(self._workers):
            if worker.job is None:
                continue
            try:
                while worker.receive(self._stopped)[0] is None:
                    pass
            except (EOFError, OSError):
                self._replace(index)
                self._await_ready(index)
            worker.job = None


def _with_kept(job: Job | BlockJob, kept: Kept) -> tuple[Job | BlockJob, tuple[Vector, ...] | None]:
    """Return a job and the vectors that its clients kept; None if there are none."""
    if isinstance(job, ClientJob):
        return job, kept(job.client)
    if not isinstance(job, BlockJob):
        return job, None
    rows = [kept(one.client) for one in job.jobs]
    job = job._replace(has_kept=tuple(row is not None for row in rows))
    return job, tuple(vector for row in rows if row is not None for vector in row)
