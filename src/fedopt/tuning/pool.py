"""Backends that run work items: a pool of worker processes, or this process.

The result of a trial does not depend on the backend.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.synchronize import SemLock
from types import FrameType
from typing import Any, Protocol

import torch

from fedopt.engine.executors import available_cores
from fedopt.engine.executors.base import Executor
from fedopt.engine.stopped_processes import StoppedProcesses, continue_stopped
from fedopt.engine.worker_server import failed_start, worker_environment
from fedopt.errors import WorkerError
from fedopt.files import no_log
from fedopt.runs.directory import remove_temporary_files
from fedopt.runs.interrupts import deferred_interrupts
from fedopt.tuning.deaths import MAX_DEATHS, count_death, stack_key
from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.stacks import Stack, form_stacks, run_stack, trial_executor
from fedopt.tuning.trials import WorkItem

_SECONDS_TO_END = 20.0  # for a checkpoint of the last finished round


class Backend(Protocol):
    """Runs work items."""

    def run(self, items: Sequence[WorkItem]) -> Generator[WorkItem, None, None]:
        """Run all items and yield each when it is complete."""


class SequentialBackend:
    """Runs stacks of work items one after the other in this process."""

    def __init__(self, executor: Executor, progress: SweepProgress) -> None:
        self._executor, self._progress = executor, progress
        self._rounds_run = self._running = 0

    def run(self, items: Sequence[WorkItem]) -> Generator[WorkItem, None, None]:
        for stack in form_stacks(items, workers=1):
            self._running = len(stack)
            self._progress.update(self._rounds_run, self._running)
            run_stack(stack, self._executor, self._count_round, self._progress.log)
            self._progress.update(self._rounds_run, running=0)
            yield from stack

    def _count_round(self) -> None:
        self._rounds_run += 1
        self._progress.update(self._rounds_run, self._running)


class TrialPool:
    """Runs stacks of work items on several processes, each stack on one core.

    If a worker dies or stays stopped, the pool is restarted and its unfinished items resume from their
    checkpoints. When the pool is closed or the main process dies, workers write a checkpoint of the last
    finished round and end.
    """

    def __init__(self, workers: int | None, progress: SweepProgress) -> None:
        self._workers, self._progress = workers or available_cores(), progress
        self._context = multiprocessing.get_context("spawn")
        # Without a lock, which a killed worker could hold forever. A lost increment is harmless.
        self._rounds_run = self._context.RawValue("q", 0)
        self._has_started = self._context.RawValue("b", 0)  # whether any worker has
        self._executor: ProcessPoolExecutor | None = None
        self._stopped = StoppedProcesses()

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, items: Sequence[WorkItem]) -> Generator[WorkItem, None, None]:
        waiting, running = deque(form_stacks(items, self._workers)), dict[Future[None], Stack]()
        deaths = Counter[str]()
        try:
            while waiting or running:
                self._submit(waiting, running, deaths)
                children = multiprocessing.active_children()
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                self._stopped.kill_stopped(_child_pids())
                if any(_is_lost(future) for future in done):
                    self._stop()  # joins all workers, then every future is done
                    done = set(running)
                    has_failed = any((child.exitcode or 0) > 0 for child in children)  # below 0: was killed
                    if has_failed and not self._has_started.value:
                        raise failed_start()
                lost: list[Stack] = []
                for future in [future for future in running if future in done]:
                    stack = running.pop(future)
                    if _is_lost(future):
                        _remove_temporary_files(stack)
                        count_death(stack, deaths)
                        lost.append(stack)
                    else:
                        future.result()
                        self._show_progress(running)
                        yield from stack
                waiting.extendleft(reversed(lost))
                self._show_progress(running)
        finally:
            if running:
                self._stop()
                for stack in running.values():
                    _remove_temporary_files(stack)

    def _show_progress(self, running: dict[Future[None], Stack]) -> None:
        self._progress.update(self._rounds_run.value, sum(map(len, running.values())))

    def _submit(
        self, waiting: deque[Stack], running: dict[Future[None], Stack], deaths: Counter[str]
    ) -> None:
        """Submit as many stacks as there are workers.

        The death of a worker counts for every running stack, because the pool does not name the worker.
        Before the last attempt a stack therefore runs alone.
        """
        is_last_attempt = any(
            deaths[stack_key(stack)] == MAX_DEATHS - 1 for stack in (*running.values(), *waiting)
        )
        while waiting and len(running) < (1 if is_last_attempt else self._workers):
            try:
                future = self._start_stack(waiting[0])
            except BrokenProcessPool:  # a worker has died since the last submission
                if running:
                    return
                self._stop()
                continue
            running[future] = waiting.popleft()

    def _start_stack(self, stack: Stack) -> Future[None]:
        """Submit a stack, which may start a worker process."""
        if self._executor is None:
            stop, self._stop_sender = self._context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(
                self._workers,
                self._context,
                _initialize_worker,
                (stop, self._rounds_run, self._has_started),
            )
        try:
            # An interrupt would leave a new process with half of its instructions.
            with worker_environment(), deferred_interrupts():
                return self._executor.submit(_run_in_worker, stack)
        except OSError as error:
            raise WorkerError(
                f"cannot start a worker process: {error.strerror}; use fewer workers"
            ) from error

    def _stop(self) -> None:
        """End all workers. Trials that are running can resume after their last finished round."""
        if self._executor is not None:
            self._stop_sender.close()
            continue_stopped(_child_pids())
            locks = _locks(self._executor)
            self._executor.shutdown(cancel_futures=True)
            for lock in locks:  # a resource tracker that was killed and replaced does not know them
                resource_tracker.register(lock._semlock.name, "semaphore")  # type: ignore[attr-defined]
            self._executor = None


def _locks(executor: ProcessPoolExecutor) -> list[SemLock]:
    queues = (executor._call_queue, executor._result_queue)  # type: ignore[attr-defined]
    return [value for queue in queues for value in vars(queue).values() if isinstance(value, SemLock)]


def _child_pids() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def _is_lost(future: Future[None]) -> bool:
    return future.cancelled() or isinstance(future.exception(), BrokenProcessPool)


def _remove_temporary_files(stack: Stack) -> None:
    for item in stack:
        remove_temporary_files(item.trial.path)


# -- in a worker process

_rounds_run: Any = None  # the counter that all workers share
_is_running = False


def _initialize_worker(stop: Connection[Any, Any], rounds_run: Any, has_started: Any) -> None:
    global _rounds_run
    _rounds_run = rounds_run
    has_started.value = 1
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_on_close, args=(stop,), daemon=True).start()
    torch.set_num_threads(1)


def _end_on_close(stop: Connection[Any, Any]) -> None:
    """End this process when the main process closes the other end of the pipe, or dies."""
    try:
        stop.recv()
    except (EOFError, OSError):
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(_SECONDS_TO_END)
        os._exit(1)  # files of a run are consistent at any time


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # the main process may send it again when it closes a broken pool
    if _is_running:
        raise KeyboardInterrupt
    os._exit(1)


def _run_in_worker(stack: Stack) -> None:
    global _is_running
    try:
        try:
            _is_running = True
            with trial_executor(stack[0].trial) as executor:
                run_stack(stack, executor, _count_round, no_log)
        finally:
            _is_running = False
    except KeyboardInterrupt:
        os._exit(1)  # the run directories have checkpoints


def _count_round() -> None:
    _rounds_run.value += 1
