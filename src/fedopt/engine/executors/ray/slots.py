"""The actors of a cluster as the driver sees them: start, check, replace."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedopt.engine.executors.ray.attempts import Attempts
from fedopt.engine.executors.ray.nodes import (
    Node,
    describe_failure,
    differences,
    live_nodes,
    node_error,
    read_environment,
)
from fedopt.engine.executors.ray.slot import Slot
from fedopt.engine.worker_server import ENVIRONMENT
from fedopt.errors import ClusterError, ConfigError, FedoptError, WorkerError
from fedopt.files import Log, no_log

_SECONDS_TO_START = 120.0  # for the first slot
_SECONDS_FOR_OTHERS = 30.0  # after the first one
_SECONDS_BEFORE_MESSAGE = 10.0  # about slots that have not started
_SECONDS_BETWEEN_CHECKS = 1.0  # for nodes that join
_MAX_DEATHS_WHILE_LOADING = 3  # per node; then it is not used


@dataclass(eq=False)
class SlotHandle:
    """One slot: its actor, and what the actor is doing."""

    number: int
    node: Node
    actor: Any
    environment: Any  # reference to the actor's answer
    loading: Any = None  # reference to the answer of `load`; None once the slot is ready
    task: Any = None  # reference to the result of the current piece
    attempts: Attempts | None = None  # to which the piece belongs
    is_late: bool = False  # whether a problem was started without this slot

    @property
    def is_idle(self) -> bool:
        return self.loading is None and self.task is None


class Slots:
    """Actors on all nodes, one for each CPU, or one for each `gpus` GPUs; at most `limit`."""

    def __init__(self, ray: Any, limit: int | None, device: str | None = None, gpus: float = 0.0) -> None:
        self._ray = ray
        self._limit = limit
        self._device, self._gpus = device, gpus
        self._handles: list[SlotHandle] = []
        self._next_number = 0
        self._refused: set[str] = set()  # nodes that differ from this process
        self._reported: set[str] = set()  # nodes with another model of the CPU
        self._deaths = Counter[Node]()  # of slots that were loading the problem
        self._last_check = -_SECONDS_BETWEEN_CHECKS
        self._problem: tuple[Any, ...] = ()
        self._checksum: str | None = None
        self.log: Log = no_log

    @property
    def handles(self) -> Sequence[SlotHandle]:
        return self._handles

    @property
    def ready(self) -> int:
        """Number of slots that can run work."""
        return sum(handle.loading is None for handle in self._handles)

    def load(self, problem: Any, sample: Any, checksum: str | None) -> None:
        """Load a problem on all slots. Raise an error that names the nodes that cannot take part.

        `problem` and `sample` are references.
        """
        self._check_limit()
        self._problem = ([problem], sample)  # Ray does not open references in a list
        self._checksum = checksum
        self._refused.clear()
        self._reported.clear()
        self._deaths.clear()
        for handle in self._handles:
            handle.loading = handle.actor.load.remote(*self._problem)
        self._last_check = -_SECONDS_BETWEEN_CHECKS
        self.use_new_nodes()
        problems = self._await_slots()
        if problems:
            raise self._load_error(problems)

    def _check_limit(self) -> None:
        available = sum(map(self._capacity, live_nodes(self._ray)))
        if available == 0:
            missing = "the GPUs that a worker reserves" if self._gpus else "a core"
            raise ClusterError(f"no node of the Ray cluster has {missing}; see `ray status`")
        if (self._limit or 1) > available:
            what = f"GPUs for {available} workers" if self._gpus else f"{available} cores"
            raise ConfigError(
                f"workers={self._limit or 1}, but the Ray cluster has {what}; allowed: 1 to {available}",
                keys=("workers",),
            )

    def _capacity(self, node: Node) -> int:
        return min(int(node.gpus / self._gpus), node.cpus) if self._gpus else node.cpus

    def use_new_nodes(self) -> None:
        """Start slots on free CPUs of all nodes, without waiting for them."""
        if time.monotonic() - self._last_check < _SECONDS_BETWEEN_CHECKS:
            return
        self._last_check = time.monotonic()
        nodes = {node.id: node for node in live_nodes(self._ray) if node.id not in self._refused}
        free = {name: self._capacity(node) for name, node in nodes.items()}
        for handle in self._handles:
            if handle.node.id in free:
                free[handle.node.id] -= 1
        while free and (self._limit is None or len(self._handles) < self._limit):
            name = max(free, key=lambda name: free[name])  # the node with most free CPUs
            if free[name] <= 0:
                break
            free[name] -= 1
            self._handles.append(self._start(nodes[name]))

    def _start(self, node: Node) -> SlotHandle:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = {
            "num_cpus": 1,
            "num_gpus": self._gpus,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False),
            "runtime_env": {"env_vars": ENVIRONMENT},
        }
        actor = self._ray.remote(Slot).options(**options).remote(os.getcwd(), sys.path, self._device)
        self._next_number += 1
        environment = actor.environment.remote()
        return SlotHandle(self._next_number, node, actor, environment, actor.load.remote(*self._problem))

    def _await_slots(self) -> dict[Node, FedoptError | list[str]]:
        """Wait until all slots are ready. Go on without slots that do not start. Return what is wrong."""
        problems: dict[Node, FedoptError | list[str]] = {}
        began = time.monotonic()
        deadline, message = began + _SECONDS_TO_START, began + _SECONDS_BEFORE_MESSAGE
        while loading := self._awaited():
            now = time.monotonic()
            if now > deadline:
                break
            if now > message:
                self.log(f"waiting for {len(loading)} of {len(self._handles)} workers of the Ray cluster")
                message = deadline
            problems |= self._poll(timeout=1.0)
            if self.ready:
                deadline = min(deadline, time.monotonic() + _SECONDS_FOR_OTHERS)
        if not self.ready and not problems:
            raise self._no_slots()
        if loading and not problems:
            self.log(
                f"{len(loading)} of {len(self._handles)} workers of the Ray cluster have not started; going "
                "on without them. Their CPUs may be used by other jobs, see `ray status`"
            )
        for handle in loading:
            handle.is_late = True
        return problems

    def _awaited(self) -> list[SlotHandle]:
        """Return the slots that a new problem waits for. If one is ready, late ones are not awaited again."""
        loading = [handle for handle in self._handles if handle.loading is not None]
        return [handle for handle in loading if not handle.is_late] if self.ready else loading

    def poll(self) -> None:
        """Make slots that have loaded the problem ready. Refuse nodes that differ."""
        for node, problem in self._poll(timeout=0.0).items():
            self._refused.add(node.id)
            text = str(problem) if isinstance(problem, FedoptError) else ", ".join(problem)
            self.log(f"node {node.name} of the Ray cluster is not used: {text}")

    def _poll(self, timeout: float) -> dict[Node, FedoptError | list[str]]:
        loading = {handle.loading: handle for handle in self._handles if handle.loading is not None}
        if not loading:
            return {}
        done, _ = self._ray.wait(list(loading), num_returns=len(loading), timeout=timeout)
        problems: dict[Node, FedoptError | list[str]] = {}
        for handle in map(loading.__getitem__, done):
            try:
                problem = self._problem_of(handle)
            except self._ray.exceptions.RayActorError as error:
                self.remove(handle)
                if error.actor_init_failed:
                    problems[handle.node] = [f"its worker does not start: {describe_failure(error)}"]
                    continue
                self._deaths[handle.node] += 1  # the process or its node
                if self._deaths[handle.node] == _MAX_DEATHS_WHILE_LOADING:
                    problems[handle.node] = ["its workers died while they loaded the problem"]
                continue
            except self._ray.exceptions.RayError as error:
                problems[handle.node] = [f"its worker does not start: {describe_failure(error)}"]
                self.remove(handle)
                continue
            if problem:
                problems[handle.node] = problem
                self.remove(handle)
            else:
                handle.loading, handle.is_late = None, False
                self._report_processor(handle)
        return problems

    def _report_processor(self, handle: SlotHandle) -> None:
        """State once for each node that its results may be rounded differently."""
        here, there = read_environment().processor, self._ray.get(handle.environment).processor
        if here != there and handle.node.id not in self._reported:
            self._reported.add(handle.node.id)
            self.log(
                f"node {handle.node.name} of the Ray cluster has another CPU ({there} instead of {here}); "
                "the run may not be repeatable to the bit"
            )

    def _problem_of(self, handle: SlotHandle) -> FedoptError | list[str] | None:
        """Return why a slot cannot be used."""
        different = differences(read_environment(), self._ray.get(handle.environment))
        if different:
            return different
        loaded = self._ray.get(handle.loading)
        if isinstance(loaded, FedoptError):
            return loaded
        if loaded.checksum != self._checksum:
            return [f"another store: manifest {loaded.checksum} instead of {self._checksum}"]
        return None

    def _load_error(self, problems: dict[Node, FedoptError | list[str]]) -> FedoptError:
        errors = [problem for problem in problems.values() if isinstance(problem, FedoptError)]
        everywhere = not self.ready and len({str(error) for error in errors}) == 1
        if everywhere and len(errors) == len(problems):  # an error in the problem itself
            return errors[0]
        lines = {
            node.name: [str(problem)] if isinstance(problem, FedoptError) else problem
            for node, problem in problems.items()
        }
        return node_error(lines)

    def await_one(self) -> None:
        """Wait until a slot is ready, after all have been lost."""
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self.ready:
            if time.monotonic() > deadline:
                raise self._no_slots()
            self.use_new_nodes()
            self.poll()
            time.sleep(0.1)

    def _no_slots(self) -> WorkerError:
        if self._deaths:
            nodes = ", ".join(sorted(node.name for node in self._deaths))
            return WorkerError(
                f"the workers on {nodes} of the Ray cluster died while they loaded the problem, possibly out "
                "of memory; use fewer workers per node, or look for a crash with executor='serial'"
            )
        return WorkerError(
            f"no worker of the Ray cluster started within {_SECONDS_TO_START:.0f} seconds; its CPUs may be "
            "used by other jobs, see `ray status`"
        )

    def remove(self, handle: SlotHandle) -> None:
        """Forget a slot and end its actor."""
        self._handles.remove(handle)
        self._ray.kill(handle.actor)

    def close(self) -> None:
        for handle in list(self._handles):
            self.remove(handle)
