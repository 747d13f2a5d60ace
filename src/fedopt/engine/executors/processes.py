"""The `processes` executor: one single-threaded worker per core, started once, vectors in shared memory.

Results leave in the order of the jobs. A job has a slot of shared memory from when it is sent out until its
result has been used, and none is sent out further ahead than there are slots: memory does not grow with the
cohort.
A worker that dies is replaced and its job run again; the result is the same because a job's result
depends on nothing but the job.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine import allocation
from fedopt.engine.executors.base import Kept, nothing_kept
from fedopt.engine.executors.load_balancing import Queues
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Job, Runner, initial_vector
from fedopt.errors import FedoptError, RunError, UserError

_ROW = 16  # floats: rows of shared vectors start at multiples of 64 bytes
_DEATHS_PER_JOB = 3
# Read when a worker starts: one thread each.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **allocation.ENVIRONMENT,
}


class _Vectors:
    """Rows of `d` floats in memory that all workers see."""

    def __init__(self, count: int, d: int) -> None:
        stride = -(-d // _ROW) * _ROW
        _check_shared_memory(count * stride * 4)
        self.rows = _shared(torch.zeros(max(count, 1), stride))
        self.d = d

    def __getitem__(self, index: int) -> Vector:
        row: Vector = self.rows[index, : self.d]
        return row

    def write(self, first: int, vectors: Sequence[Vector]) -> None:
        for offset, vector in enumerate(vectors):
            row = self[first + offset][: len(vector)]
            if row.data_ptr() != vector.data_ptr():  # else it was made here
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
        raise RunError(
            f"workers need {needed / 1e6:.0f} MB of shared memory and /dev/shm has {free / 1e6:.0f} MB; "
            "enlarge it, use fewer --workers, or --executor serial"
        )


class _Worker:
    """A worker process, seen from here."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with worker_environment():
            self.process.start()
        theirs.close()
        self.job: int | None = None  # position of the job it is on

    def stop(self) -> None:
        self.connection.close()  # it leaves when it finds nobody at the other end
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def worker_environment() -> Iterator[None]:
    """Thread settings must be there before a worker imports torch."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Processes:
    """Runs jobs in `workers` processes."""

    fallback_reason = ""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[_Worker] = []  # started with the first problem
        self._loaded: tuple[Any, ...] | None = None

    @property
    def pids(self) -> list[int]:
        """The workers' process ids, for those who watch them."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def start(self) -> None:
        """Start the workers; they import what they need while the caller goes on."""
        while len(self._workers) < self._count:
            self._workers.append(_Worker())

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        try:
            pickle.dumps(problem)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(
                f"worker processes cannot import part of this problem ({error}); define it at the top "
                "level of a module, or use executor='serial'"
            ) from error
        self.start()
        d = len(initial_vector(problem))
        self._local = problem.local
        algorithm = problem.algorithm()
        self._keeps = len(algorithm.keeps)
        self._per_slot = len(algorithm.returns) + 2 * self._keeps  # kept from before, returned, kept
        self._slots = 4 * len(self._workers)
        self._sent = _Vectors(len(algorithm.sends), d)
        self._shared = _Vectors(self._slots * self._per_slot, d)
        shared_sample = tuple(_shared(torch.from_numpy(a)) for a in sample)
        self._loaded = (problem, shared_sample, self._sent, self._shared, self._keeps)
        for place in range(len(self._workers)):
            self._send_problem(place)
        for place in range(len(self._workers)):
            self._await_ready(place)

    def _send_problem(self, place: int) -> None:
        try:
            self._workers[place].connection.send(self._loaded)
        except OSError:  # it died since it was last needed
            self._replace(place)

    def _await_ready(self, place: int) -> None:
        try:
            failure = self._workers[place].connection.recv()[-1]
        except (EOFError, OSError):
            raise RunError(
                "a worker process ended while it was starting; a script that uses processes needs "
                "`if __name__ == '__main__':` around its call, or executor='serial'"
            ) from None
        if failure is not None:
            raise failure

    def _replace(self, place: int) -> None:
        """A new worker in the place of a dead one, with the same problem."""
        self._workers[place].stop()
        self._workers[place] = _Worker()
        self._workers[place].connection.send(self._loaded)

    def share(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        self._sent.write(0, vectors)
        return self._sent.read(0, list(map(len, vectors)))

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        self._sent.write(0, sent)
        queues = Queues([self._cost(job) for job in jobs], len(self._workers))
        replies: dict[int, tuple[Any, tuple[int, ...]]] = {}
        deaths: dict[int, int] = {}

        def hand_out() -> None:
            for place, worker in enumerate(self._workers):
                if worker.job is None:
                    number = queues.next(place, before=position + self._slots)
                    if number is not None:
                        self._dispatch(worker, number, jobs[number], kept)

        try:
            for position in range(len(jobs)):
                hand_out()
                while position not in replies:
                    for place, number in self._collect(replies):
                        deaths[number] = deaths.get(number, 0) + 1
                        if deaths[number] == _DEATHS_PER_JOB:
                            raise RunError(f"a worker died {_DEATHS_PER_JOB} times on {_name(jobs[number])}")
                        queues.again(place, number)
                    hand_out()  # also before the caller goes to work on what has come
                reply, lengths = replies.pop(position)
                yield reply, self._shared.read(self._first(position) + self._keeps, lengths)
        finally:
            self._drain()

    def _first(self, number: int) -> int:
        """Where a job's vectors begin. Slots are taken in turn: no more jobs are under way at once."""
        return number % self._slots * self._per_slot

    def _cost(self, job: Job) -> float:
        return self._local.effort(job.examples) if isinstance(job, ClientJob) else 1.0

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _dispatch(self, worker: _Worker, number: int, job: Job, kept: Kept) -> None:
        before = kept(job.client) if isinstance(job, ClientJob) else None
        first = self._first(number)
        if before is not None:
            self._shared.write(first, before)
        worker.job = number
        try:
            worker.connection.send((number, job, first, before is not None))
        except OSError:
            pass  # it has died; _collect finds out and the job is run again

    def _collect(self, replies: dict[int, tuple[Any, tuple[int, ...]]]) -> list[tuple[int, int]]:
        """Wait for news: store finished jobs, replace dead workers, return their places and jobs."""
        lost = []
        busy = {worker.connection: i for i, worker in enumerate(self._workers) if worker.job is not None}
        for connection in wait(list(busy)):
            place = busy[connection]  # type: ignore[index]
            worker = self._workers[place]
            try:
                number, reply, lengths, failure = worker.connection.recv()
            except (EOFError, OSError):
                assert worker.job is not None
                lost.append((place, worker.job))
                self._replace(place)
                continue
            if number is not None:  # None: a replaced worker is ready
                worker.job = None
                replies[number] = (reply, lengths)
            if failure is not None:
                raise failure
        return lost

    def _drain(self) -> None:
        """After an interruption, let workers finish what they are on, so that the next map starts clean."""
        for place, worker in enumerate(self._workers):
            if worker.job is None:
                continue
            try:
                while worker.connection.recv()[0] is None:
                    pass
            except (EOFError, OSError):
                self._replace(place)
                self._await_ready(place)
            worker.job = None


def _name(job: Job) -> str:
    return (
        f"client number {job.client} in round {job.round.t + 1}" if isinstance(job, ClientJob) else str(job)
    )


def _serve(connection: Connection[Any, Any]) -> None:
    """The life of a worker: load problems, answer jobs, leave when the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what an interrupt means
    torch.set_num_threads(1)
    runner: Runner | None = None
    try:
        while True:
            message = connection.recv()
            if isinstance(message[0], Problem):
                problem, sample, sent, shared, keeps = message
                runner, failure = _load(problem, tuple(a.numpy() for a in sample))
                connection.send((None, None, (), failure))
                continue
            number, job, first, has_kept = message
            assert runner is not None  # jobs follow a problem that was loaded
            try:
                before = shared.read(first, [shared.d] * keeps) if has_kept else None
                there = sent.read(0, [sent.d] * len(sent.rows))
                reply, vectors = runner.run(job, there, before, room=shared[first + keeps])
                shared.write(first + keeps, vectors)
                connection.send((number, reply, tuple(map(len, vectors)), None))
            except FedoptError as error:
                connection.send((number, None, (), error))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _load(problem: Problem, sample: Arrays) -> tuple[Runner | None, FedoptError | None]:
    """A runner for the problem, or the one line that says why there is none."""
    try:
        return Runner(problem, problem.federation(), sample), None
    except FedoptError as error:
        return None, error
    except Exception as error:  # in the user's model or data
        failure = RunError(f"loading the problem: {type(error).__name__}: {' '.join(str(error).split())}")
        failure.add_note(traceback.format_exc())
        return None, failure
