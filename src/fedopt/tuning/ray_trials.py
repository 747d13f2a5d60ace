"""A backend that runs whole trials on a Ray cluster, each on one CPU.

Trials write into their run directories, so these must be on a path that all nodes share. A trial whose node
dies runs again elsewhere and resumes from its newest checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from fedopt.data.store.stored import manifest_checksum
from fedopt.engine.executors import available_cores
from fedopt.engine.executors.ray.connection import connected, import_ray
from fedopt.engine.executors.ray.nodes import (
    Environment,
    describe_failure,
    differences,
    live_nodes,
    node_error,
    read_environment,
)
from fedopt.engine.executors.ray.user_code import runtime_env
from fedopt.engine.executors.serial import Serial
from fedopt.engine.worker_server import ENVIRONMENT
from fedopt.errors import ConfigError, FedoptError, WorkerError
from fedopt.runs.directory import remove_temporary_files
from fedopt.tuning.deaths import count_death
from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.trials import WorkItem
from fedopt.tuning.worker import run_item

_SECONDS_TO_END = 20.0  # for a checkpoint of the last finished round


class RayTrials:
    """Runs work items on the cluster at `address`, or on the local cores; at most `workers` at a time."""

    def __init__(self, workers: int | None, address: str | None, progress: SweepProgress) -> None:
        self._workers, self._address, self._progress = workers, address, progress
        self._connection = ExitStack()
        self._counter: Any = None  # an actor
        self._count: Any = None  # its next answer
        self._rounds = 0  # that it has reported

    def __enter__(self) -> RayTrials:
        cores = self._workers or available_cores()
        code = runtime_env() if self._address else None
        self._connection.enter_context(connected(self._address, cores, code))
        self._ray = import_ray()
        if (self._workers or 1) > self._cores:
            self._connection.close()
            raise ConfigError(
                f"workers={self._workers or 1}, but the Ray cluster has {self._cores} cores; allowed: 1 to "
                f"{self._cores}",
                keys=("workers",),
            )
        self._start_counter()
        options = {"num_cpus": 1, "max_retries": 0, "runtime_env": {"env_vars": ENVIRONMENT}}
        self._run_trial = self._ray.remote(_run_trial).options(**options)
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    @property
    def _cores(self) -> int:
        return sum(node.cpus for node in live_nodes(self._ray))

    def run(self, items: Sequence[WorkItem]) -> Generator[WorkItem, None, None]:
        waiting, running = deque(items), dict[Any, WorkItem]()
        deaths = Counter[str]()
        try:
            while waiting or running:
                while waiting and len(running) < (self._workers or max(self._cores, 1)):
                    item = waiting.popleft()
                    running[self._submit(item)] = item
                done, _ = self._ray.wait(list(running), timeout=1.0)
                self._show(len(running) - len(done))
                for task in done:
                    item = running.pop(task)
                    try:
                        outcome = self._ray.get(task)
                    except self._ray.exceptions.RayTaskError as error:
                        raise WorkerError(f"a trial failed on its node: {describe_failure(error)}") from error
                    except self._ray.exceptions.RayError:  # the process or its node has died
                        remove_temporary_files(item.trial.path)
                        count_death((item,), deaths)
                        waiting.appendleft(item)
                        continue
                    if isinstance(outcome, FedoptError):
                        raise outcome
                    yield item
        finally:
            self._cancel(running)

    def _submit(self, item: WorkItem) -> Any:
        item.trial.path.parent.mkdir(parents=True, exist_ok=True)
        return self._run_trial.remote(item, os.getcwd(), sys.path, read_environment(), self._counter)

    def _show(self, running: int) -> None:
        """Show the number of rounds that the counter reported last. It may have been lost with its node."""
        answered, _ = self._ray.wait([self._count], timeout=0)
        if answered:
            try:
                self._rounds = self._ray.get(self._count)
                self._count = self._counter.value.remote()
            except self._ray.exceptions.RayError:
                self._start_counter()
        self._progress.update(self._rounds, running)

    def _start_counter(self) -> None:
        self._counter = self._ray.remote(_Counter).options(num_cpus=0).remote(self._rounds)
        self._count = self._counter.value.remote()

    def _cancel(self, running: dict[Any, WorkItem]) -> None:
        """End the trials that are running. They write a checkpoint of the last finished round."""
        for task in running:
            self._ray.cancel(task)
        if running:
            _, late = self._ray.wait(list(running), num_returns=len(running), timeout=_SECONDS_TO_END)
            if late:
                self._progress.log(
                    f"{len(late)} trials did not end within {_SECONDS_TO_END:.0f} seconds; they continue "
                    "from their newest checkpoints when the command is repeated"
                )
        for item in running.values():
            remove_temporary_files(item.trial.path)


# -- on the nodes


class _Counter:
    """Counts the rounds of all trials."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def add(self) -> None:
        self._rounds += 1

    def value(self) -> int:
        return self._rounds


def _run_trial(
    item: WorkItem, directory: str, path: Sequence[str], driver: Environment, counter: Any
) -> FedoptError | None:
    """Run a work item in this process. Return an error of the trial or of this node."""
    if os.path.isdir(directory):
        os.chdir(directory)
    sys.path += [entry for entry in path if entry not in sys.path]
    torch.set_num_threads(1)
    # Ray cancels a task by SIGINT. A worker ignores it if its node was started in the background of a shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        problems = _node_problems(item, driver)
        if problems:
            node = import_ray().util.get_node_ip_address()
            return node_error({f"{os.uname().nodename} ({node})": problems})
        run_item(item, Serial(), lambda: counter.add.remote())
    except FedoptError as error:
        return error
    return None


def _node_problems(item: WorkItem, driver: Environment) -> list[str]:
    """Describe why this node cannot run a trial of the driver."""
    problems = differences(driver, read_environment())
    parent = item.trial.path.parent.absolute()
    if not parent.is_dir():
        problems.append(f"the directory {parent} does not exist; trials need a path that all nodes share")
    expected = item.trial.config.data.get("manifest")
    found = manifest_checksum(Path(str(item.trial.config.data["source"])))
    if found != expected:
        problems.append(f"another store: manifest {found} instead of {expected}")
    return problems
