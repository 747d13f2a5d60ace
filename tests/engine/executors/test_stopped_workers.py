"""Worker processes that are stopped or die during their start."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import namedtuple
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small

from fedopt.engine import stopped_processes
from fedopt.engine.executors.processes import Processes
from fedopt.engine.executors.worker_process import WorkerProcess
from fedopt.engine.loop import Step
from fedopt.engine.stopped_processes import is_stopped
from fedopt.engine.worker_server import start_worker_server
from fedopt.errors import WorkerError

pytestmark = pytest.mark.xdist_group("workers")
SETTINGS = {"rounds": 4, "clients_per_round": 24}


def test_stopped_worker_is_replaced_and_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped_processes, "SECONDS", 1)
    executor = Processes(2)
    stopped: list[int] = []

    def stop_a_worker(step: Step) -> None:
        if step.position.round in (0, 2):
            stopped.append(executor.pids[step.position.round // 2])
            os.kill(stopped[-1], signal.SIGSTOP)

    try:
        result = small.run(executor, settings=SETTINGS, on_step=stop_a_worker)
        assert not set(stopped) & set(executor.pids)
    finally:
        executor.close()
    assert result.x_sha256 == small.run(settings=SETTINGS).x_sha256


def test_interrupt_ends_a_run_with_a_stopped_worker_at_once(tmp_path: Path) -> None:
    executor = Processes(2)

    def stop_and_interrupt(step: Step) -> None:
        if step.position.round == 2:
            os.kill(executor.pids[0], signal.SIGSTOP)
            signal.setitimer(signal.ITIMER_REAL, 0.5)  # in the next round, which waits for the worker

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            small.run(executor, settings=SETTINGS, on_step=stop_and_interrupt, out=tmp_path / "run")
        began = time.monotonic()
        executor.close()
        assert time.monotonic() - began < 3
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (
        small.run(settings=SETTINGS, out=tmp_path / "run").x_sha256 == small.run(settings=SETTINGS).x_sha256
    )


def test_idle_stopped_worker_does_not_delay_the_end() -> None:
    worker = WorkerProcess()
    os.kill(worker.pid, signal.SIGSTOP)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 4  # a worker that does not react has five seconds
    assert worker.process.exitcode == 0


def test_process_is_recognised_as_stopped() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert is_stopped(process.pid)
    finally:
        process.kill()
        process.wait()
    assert not is_stopped(process.pid)


class KilledAtStart(WorkerProcess):
    """A worker that is killed before it has loaded a problem."""

    def __init__(self) -> None:
        super().__init__()
        os.kill(self.pid, signal.SIGKILL)
        self.process.join()


def test_worker_killed_during_its_start_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Processes(1)
    executor._workers.append(KilledAtStart())
    try:
        assert small.run(executor, settings=SETTINGS).x_sha256 == small.run(settings=SETTINGS).x_sha256
    finally:
        executor.close()


def test_worker_killed_together_with_its_server_is_replaced() -> None:
    class KilledWithServer(WorkerProcess):
        def load(self, problem: Any) -> None:
            super().load(problem)
            for pid in (forkserver._forkserver._forkserver_pid, self.pid):  # type: ignore[attr-defined]
                os.kill(pid, signal.SIGKILL)

    executor = Processes(1)
    executor._workers.append(KilledWithServer())
    try:
        assert small.run(executor, settings=SETTINGS).x_sha256 == small.run(settings=SETTINGS).x_sha256
    finally:
        executor.close()


def test_repeated_kills_during_the_start_are_reported_with_their_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedopt.engine.executors.processes.WorkerProcess", KilledAtStart)
    executor = Processes(1)
    try:
        with pytest.raises(WorkerError, match="SIGKILL") as caught:
            small.run(executor, settings=SETTINGS)
        assert "__main__" not in str(caught.value)
    finally:
        executor.close()


def test_worker_starts_although_its_server_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempts find a server that dies before it has started the worker."""
    from fedopt.engine.executors import worker_process

    servers: list[int] = []

    def start_and_kill_server() -> None:
        start_worker_server()
        if len(servers) < 2:
            servers.append(forkserver._forkserver._forkserver_pid)
            os.kill(servers[-1], signal.SIGKILL)

    monkeypatch.setattr(worker_process, "start_worker_server", start_and_kill_server)
    WorkerProcess().stop()
    assert len(set(servers)) == 2


Usage = namedtuple("Usage", "total used free")


def test_shared_memory_for_the_evaluation_sample_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small.problem()
    federation = problem.federation()
    sample = (np.zeros((1000, 1000), np.float32),)  # 4 MB; all vectors together have less than 0.1 MB
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**7, 0, 3 * 10**6))
    executor = Processes(1)
    try:
        with pytest.raises(WorkerError, match=r"4 MB .* has 3 MB"):
            executor.load(problem, federation, sample)
    finally:
        executor.close()
