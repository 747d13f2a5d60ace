"""A worker process of the `processes` executor: the connection to it, and the code that it runs."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from fedopt.data import Arrays, Federation
from fedopt.engine.problem import Problem
from fedopt.engine.stopped_processes import StoppedProcesses, continue_stopped
from fedopt.engine.torch_state import kept_generators
from fedopt.engine.worker import Worker
from fedopt.engine.worker_server import start_worker_server
from fedopt.errors import FedoptError, WorkerError, one_line

_SECONDS_TO_END = 5
_UNKNOWN = 255  # the exit code that multiprocessing reports for workers of a server that has died
_ATTEMPTS_TO_START, _SECONDS_BETWEEN_ATTEMPTS = 5, 0.2

BuildWorker = Callable[[Problem, Federation, Arrays], Worker]


class WorkerProcess:
    """A worker process and the connection to it."""

    def __init__(self) -> None:
        for attempt in range(_ATTEMPTS_TO_START):
            try:
                self.connection, self.process = _start()
                break
            except (EOFError, OSError) as error:  # the server has died, or a limit is reached
                if attempt == _ATTEMPTS_TO_START - 1:
                    reason = getattr(error, "strerror", None) or "its server has ended"
                    raise WorkerError(
                        f"cannot start a worker process: {reason}; use fewer workers, or the serial executor"
                    ) from error
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)  # until the end of the server is noticed
        self.job: int | None = None  # number of its current job

    @property
    def pid(self) -> int:
        assert self.process.pid is not None  # it has been started
        return self.process.pid

    def load(self, problem: tuple[Any, ...] | None) -> None:
        """Send a problem. The path may have changed since the worker started."""
        self.connection.send(sys.path)
        self.connection.send(problem)

    def receive(self, stopped: StoppedProcesses) -> Any:
        """Wait for a message. Raise EOFError or OSError if the worker has died or stays stopped."""
        while not self.connection.poll(timeout=1.0):
            stopped.kill_stopped([self.pid])
        return self.connection.recv()

    def end(self) -> int:
        """Wait for the end of a worker whose connection is closed, and return its exit code.

        If the server was killed too, the code is unknown, and a kill is assumed.
        """
        self.process.join(timeout=_SECONDS_TO_END)
        self.process.kill()
        self.process.join()
        assert self.process.exitcode is not None
        return -signal.SIGKILL if self.process.exitcode == _UNKNOWN else self.process.exitcode

    def stop(self) -> None:
        """End the worker: an idle one by closing the connection, a busy one by a signal."""
        self.connection.close()
        if self.job is not None:
            self.process.kill()
        continue_stopped([self.pid])
        self.end()


def _start() -> tuple[Connection[Any, Any], ForkServerProcess]:
    """Start a process that serves the other end of a connection."""
    start_worker_server()
    context = multiprocessing.get_context("forkserver")
    connection, other_end = context.Pipe()
    with closing(other_end):
        process = context.Process(target=_serve, args=(other_end,), daemon=True)
        try:
            process.start()
        except BaseException:
            connection.close()
            raise
    return connection, process


def _serve(connection: Connection[Any, Any]) -> None:
    """Run a worker process: load problems and run jobs until the connection is closed."""
    torch.set_num_threads(1)
    worker: Worker | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError), kept_generators():
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
                problem, sample, build, sent, shared, keeps = message
                worker, failure = _load(problem, tuple(a.numpy() for a in sample), build)
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


def _load(problem: Problem, sample: Arrays, build: BuildWorker) -> tuple[Worker | None, FedoptError | None]:
    """Create a worker for the problem, or an error with a message of one line."""
    try:
        return build(problem, problem.federation(), sample), None
    except FedoptError as error:
        return None, error
    except Exception as error:  # in the user's model or data
        failure = WorkerError(f"loading the problem: {one_line(error)}")
        failure.add_note(traceback.format_exc())
        return None, failure
