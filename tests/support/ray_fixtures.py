"""A Ray cluster of three nodes on the loopback interface, and an executor that is connected to it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small

from fedopt.engine.executors.ray.connection import SYSTEM_CONFIG, import_ray
from fedopt.engine.executors.ray.executor import RayExecutor


class LoopbackCluster:
    """Real nodes, each with its own processes. The head node has no CPU for clients.

    The nodes ignore SIGINT, like those that a script starts in the background with `ray start &`.
    """

    def __init__(self) -> None:
        ray = import_ray()
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # use the loopback interface
        from ray.cluster_utils import Cluster

        # A dead node is noticed after two seconds instead of fifteen.
        checks = SYSTEM_CONFIG | {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_timeout_ms": 500,
            "health_check_failure_threshold": 4,
        }
        head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, "_system_config": checks}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            self.add()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def workers(self) -> list[Any]:
        """Return all nodes except the head node."""
        return list(self._cluster.worker_nodes)

    def add(self, **options: Any) -> Any:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return self._cluster.add_node(**{"num_cpus": 1} | options)
        finally:
            signal.signal(signal.SIGINT, handler)

    def kill(self, node: Any) -> None:
        """End a node with SIGKILL, and wait until the cluster has noticed it."""
        ray = import_ray()
        self._cluster.remove_node(node, allow_graceful=False)
        while any(other["Alive"] and other["NodeID"] == node.node_id for other in ray.nodes()):
            time.sleep(0.1)

    def kill_host(self, pid: int) -> None:
        """End the node of a worker process with SIGKILL."""
        status = Path(f"/proc/{pid}/status").read_text()
        parent = int(status.partition("PPid:")[2].split()[0])
        [node] = [
            node
            for node in self._cluster.worker_nodes
            if any(process.process.pid == parent for process in node.all_processes["raylet"])
        ]
        os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def cluster() -> Iterator[LoopbackCluster]:
    pytest.importorskip("ray")
    started = LoopbackCluster()
    yield started
    started.close()


@pytest.fixture(scope="session")
def on_ray(cluster: LoopbackCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayExecutor]:
    """An executor with one slot on each node, shared by all tests."""
    executor, handler = RayExecutor(None, cluster.address), signal.getsignal(signal.SIGTERM)
    with contextlib.chdir(tmp_path_factory.mktemp("cluster")):
        small.run(executor, settings={"rounds": 1})
    assert signal.getsignal(signal.SIGTERM) == handler, "Ray replaced the handler of the program"
    yield executor
    executor.close()


@pytest.fixture
def free_cluster(on_ray: RayExecutor) -> None:
    """All CPUs of the cluster are free. The executor starts its slots again when it is used."""
    assert on_ray._slots is not None
    on_ray._slots.close()
