"""The `processes` executor: worker processes with one thread each, and vectors in shared memory.

Results are returned in the order of the jobs. A job occupies a slot of shared memory from its dispatch until
its result has been used. The number of slots limits how far jobs run ahead, so memory does not grow with the
cohort.

A worker that dies is replaced, and its job runs again. The result is the same, because it depends on the job
only.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.executors.base import BlockResult, Kept, nothing_kept
from fedopt.engine.executors.blocks import train_by_client
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Job, Worker, initial_model, one_line
from fedopt.engine.worker_server import start_worker_server
from fedopt.errors import FedoptError, ModelError, WorkerError
from fedopt.files import Log

_ROW_ALIGNMENT = 16  # floats: rows of shared vectors start at multiples of 64 bytes
_MAX_DEATHS_PER_JOB = 3


class _SharedVectors:
    """Rows of `d` floats in shared memory."""

    def __init__(self, count: int, d: int) -> None:
        stride = -(-d // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
        _check_shared_memory(count * stride * 4)
        self.rows = _shared(torch.zeros(max(count, 1), stride))
        self.d = d

    def __getitem__(self, index: int) -> Vector:
        row: Vector = self.rows[index, : self.d]
        return row

    def write(self, first: int, vectors: Sequence[Vector]) -> None:
        for offset, vector in enumerate(vectors):
            row = self[first + offset][: len(vector)]
            if row.data_ptr() != vector.data_ptr():  # otherwise the vector is this row
                row.copy_(vector)

    def read(self, first: int, lengths: Sequence[int]) -> tuple[Vector, ...]:
        return tuple(self[first + offset][:length] for offset, length in enumerate(lengths))


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()  # type: ignore[no-untyped-call,no-any-return]


def _check_shared_memory(needed: int) -> None:
    if not os.path.isdir("/dev/shm"):
        return
    free = shutil.disk_usage("/dev/shm").free
    if needed > free:
        raise WorkerError(
            f"workers need {needed / 1e6:.0f} MB of shared memory and /dev/shm has {free / 1e6:.0f} MB; "
            "enlarge it, use fewer workers, or the serial executor"
        )


class _WorkerProcess:
    """A worker process and the connection to it."""

    def __init__(self) -> None:
        start_worker_server()
        context = multiprocessing.get_context("forkserver")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(other_end,), daemon=True)
        self.process.start()
        other_end.close()
        self.job: int | None = None  # number of its current job

    def load(self, problem: tuple[Any, ...] | None) -> None:
        """Send a problem. The path may have changed since the worker started."""
        self.connection.send(sys.path)
        self.connection.send(problem)

    def stop(self) -> None:
        """End the worker: an idle one by closing the connection, a busy one by a signal."""
        self.connection.close()
        if self.job is None:
            self.process.join(timeout=5)
        self.process.kill()
        self.process.join()


class Processes:
    """Runs jobs in `workers` processes."""

    fallback_reason = ""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[_WorkerProcess] = []  # started with the first problem
        self._loaded: tuple[Any, ...] | None = None

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    @property
    def is_started(self) -> bool:
        return bool(self._workers)

    def report_to(self, log: Log) -> None:
        pass

    def start(self) -> None:
        """Start the workers without waiting for them."""
        while len(self._workers) < self._count:
            self._workers.append(_WorkerProcess())

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
        self._keeps = len(algorithm.keeps)
        self._returned = len(algorithm.returns)
        self._per_slot = self._returned + 2 * self._keeps  # kept before, returned, kept
        self._slots = 4 * len(self._workers)
        if problem.fixed is not None:  # sending it moves it to shared memory, once for all workers
            _check_shared_memory(problem.fixed.nbytes)
        self._sent = _SharedVectors(max(len(algorithm.sends), 2 if statistics else 1), d)
        self._shared = _SharedVectors(self._slots * self._per_slot, d)
        shared_sample = tuple(_shared(torch.from_numpy(a)) for a in sample)
        self._loaded = (problem, shared_sample, self._sent, self._shared, self._keeps)
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
        try:
            failure: FedoptError | None = self._workers[index].connection.recv()[-1]
        except (EOFError, OSError):
            raise WorkerError(
                "a worker process ended during its start; a script that uses processes needs "
                "`if __name__ == '__main__':` around its call, or executor='serial'"
            ) from None
        return failure

    def _replace(self, index: int) -> None:
        """Replace a dead worker by a new one with the same problem."""
        self._workers[index].stop()
        self._workers[index] = _WorkerProcess()
        self._workers[index].load(self._loaded)

    def share(self, x: Vector) -> Vector:
        self._sent.write(0, (x,))
        return self._sent[0]

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        return train_by_client(self, jobs, sent, kept, self._returned)

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
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
                        if deaths[number] == _MAX_DEATHS_PER_JOB:
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

    def _repeated_death(self, job: Job) -> WorkerError:
        client, round, where = None, None, "an evaluation"
        if isinstance(job, ClientJob):
            client, round = self._client_ids[job.client], job.round.t + 1
            where = f"client {client!r} in round {round}"
        text = f"a worker died {_MAX_DEATHS_PER_JOB} times on {where}, possibly out of memory"
        return WorkerError(f"{text}; use fewer workers", client=client, round=round)

    def _first(self, number: int) -> int:
        """Return the index of a job's first vector. Slots are used in turn."""
        return number % self._slots * self._per_slot

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _dispatch(self, worker: _WorkerProcess, number: int, job: Job, kept: Kept) -> None:
        before = kept(job.client) if isinstance(job, ClientJob) else None
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
        for connection in wait(list(busy)):
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
                while worker.connection.recv()[0] is None:
                    pass
            except (EOFError, OSError):
                self._replace(index)
                self._await_ready(index)
            worker.job = None


def _serve(connection: Connection[Any, Any]) -> None:
    """Run a worker process: load problems and run jobs until the connection is closed."""
    torch.set_num_threads(1)
    worker: Worker | None = None
    try:
        while True:
            try:
                message = connection.recv()
            except (ImportError, AttributeError) as error:
                reason = f"worker processes cannot import part of this problem: {one_line(error)}"
                connection.send((None, None, (), WorkerError(reason)))
                continue
            if isinstance(message, list):
                sys.path[:] = message
                continue
            if isinstance(message[0], Problem):
                problem, sample, sent, shared, keeps = message
                worker, failure = _load(problem, tuple(a.numpy() for a in sample))
                connection.send((None, None, (), failure))
                continue
            number, job, first, kept_lengths, sent_lengths = message
            assert worker is not None  # jobs follow a loaded problem
            try:
                kept = None if kept_lengths is None else shared.read(first, kept_lengths)
                received = sent.read(0, sent_lengths)
                reply, vectors = worker.run(job, received, kept, output=shared[first + keeps])
                shared.write(first + keeps, vectors)
                connection.send((number, reply, tuple(map(len, vectors)), None))
            except FedoptError as error:
                connection.send((number, None, (), error))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _load(problem: Problem, sample: Arrays) -> tuple[Worker | None, FedoptError | None]:
    """Create a worker for the problem, or an error with a message of one line."""
    try:
        return Worker(problem, problem.federation(), sample), None
    except FedoptError as error:
        return None, error
    except Exception as error:  # in the user's model or data
        failure = WorkerError(f"loading the problem: {one_line(error)}")
        failure.add_note(traceback.format_exc())
        return None, failure
