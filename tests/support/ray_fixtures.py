"""A Ray cluster of three nodes on the loopback interface, and an executor that is connected to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import small

from fedopt.engine.executors.ray.connection import import_ray
from fedopt.engine.executors.ray.executor import RayExecutor


class LoopbackCluster:
    """Real nodes, each with its own processes. The head node has no CPU for clients."""

    def __init__(self) -> None:
        ray = import_ray()
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # use the loopback interface
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "num_gpus": 0}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.add() for _ in range(2)]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, **options: Any) -> Any:
        return self._cluster.add_node(**{"num_cpus": 1} | options)

    def kill(self, node: Any) -> None:
        """End all processes of a node with SIGKILL."""
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
    executor = RayExecutor(None, cluster.address)
    before = os.environ.get("RAY_USAGE_STATS_ENABLED")
    with contextlib.chdir(tmp_path_factory.mktemp("cluster")):
        small.run(executor, settings={"rounds": 1})
    assert before is None or before == "0"
    yield executor
    executor.close()
