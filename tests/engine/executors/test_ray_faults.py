"""Nodes that die, join, hang or differ from the driver."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import small
from ray_fixtures import LoopbackCluster
from smallstores import write_small_store
from stored_clients import STORE, stored_federation

import fedopt
from fedopt.engine.executors.ray import nodes as nodes_module
from fedopt.engine.executors.ray import slots as slots_module
from fedopt.engine.executors.ray.attempts import Attempts, PieceTimes
from fedopt.engine.executors.ray.connection import import_ray
from fedopt.engine.executors.ray.executor import RayExecutor
from fedopt.engine.executors.ray.pieces import Piece
from fedopt.errors import ClusterError, WorkerError

pytestmark = pytest.mark.xdist_group("ray")

ALL_CLIENTS = {"rounds": 2, "clients_per_round": 24, "client.steps": 1}


def in_order() -> list[int]:
    """Return all clients, the largest first (all sizes differ)."""
    return sorted(range(24), key=lambda i: -small.sizes(24)[i])


def when_marked(mark: Path, action: Callable[[int], None]) -> threading.Thread:
    """Call `action` with the process id in a file, once a client has written it."""

    def wait() -> None:
        while not mark.exists() or not mark.read_text().endswith("\n"):
            time.sleep(0.01)
        action(int(mark.read_text().split()[0]))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_killed_slot_is_replaced_and_the_result_is_the_same(on_ray: RayExecutor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task = replace(small.SMALL, prepare=partial(small.hung_once, str(mark), in_order()[3]))
    killer = when_marked(mark, lambda pid: os.kill(pid, signal.SIGKILL))
    result = small.run(on_ray, "scaffold", ALL_CLIENTS, task)
    killer.join(timeout=10)
    assert not killer.is_alive()
    assert result.x_sha256 == small.run(None, "scaffold", ALL_CLIENTS).x_sha256


def test_hanging_client_runs_again_elsewhere_and_counts_once(on_ray: RayExecutor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task = replace(small.SMALL, prepare=partial(small.hung_once, str(mark), in_order()[9]))
    settings = ALL_CLIENTS | {"client.epochs": 1}
    settings.pop("client.steps")
    began = time.monotonic()
    result = small.run(on_ray, settings=settings, task=task)
    assert time.monotonic() - began < 30
    assert mark.exists()
    assert result.x_sha256 == small.run(settings=settings).x_sha256
    assert [line["clients"] for line in result.train] == [24, 24]
    os.kill(int(mark.read_text()), signal.SIGKILL)  # so that later tests have two slots


def test_node_is_killed_and_another_one_joins(
    cluster: LoopbackCluster, on_ray: RayExecutor, tmp_path: Path
) -> None:
    """A client hangs, and its node is killed. The result is the same, and the new node is used."""
    slots, mark, messages = on_ray._slots, tmp_path / "mark", list[str]()
    assert slots is not None
    task = replace(small.SMALL, prepare=partial(small.hung_once, str(mark), in_order()[0]))
    killer = when_marked(mark, cluster.kill_host)
    result = small.run(on_ray, "scaffold", ALL_CLIENTS, task, log=messages.append)
    killer.join(timeout=30)
    assert not killer.is_alive()
    assert result.x_sha256 == small.run(None, "scaffold", ALL_CLIENTS).x_sha256
    new = cluster.add()
    deadline = time.monotonic() + 60
    while all(handle.node.id != new.node_id for handle in slots.handles) and time.monotonic() < deadline:
        assert small.run(on_ray).x_sha256 == small.run().x_sha256
    assert new.node_id in {handle.node.id for handle in slots.handles if handle.loading is None}


def test_round_ends_if_only_slots_that_never_load_are_left(
    on_ray: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPUs of the slots are used by other jobs, so `load` never answers."""
    small.run(on_ray)
    monkeypatch.setattr(slots_module, "_SECONDS_TO_START", 0.5)
    assert on_ray._slots is not None
    on_ray._slots._deaths.clear()  # of nodes that earlier tests have killed
    never = import_ray().remote(num_cpus=1000)(small.sizes).remote(1)
    for handle in on_ray._slots.handles:
        handle.loading = never
    pieces = [Piece([], 1, False)]
    with pytest.raises(WorkerError, match="used by other jobs"):
        on_ray._collect(Attempts(pieces, 4, PieceTimes()), pieces)
    on_ray._slots.close()


def test_workers_that_die_while_loading_are_named(on_ray: RayExecutor) -> None:
    task = replace(small.SMALL, model=partial(small.deadly_network, os.getpid()))
    with pytest.raises(WorkerError, match="died while they loaded the problem") as caught:
        small.run(on_ray, task=task)
    assert all(node["NodeID"][:8] in str(caught.value) for node in import_ray().nodes() if _has_cpu(node))


def _has_cpu(node: dict) -> bool:
    return bool(node["Alive"] and node["Resources"].get("CPU"))


@pytest.mark.slow  # starts its slots again and waits for one that cannot start
def test_problem_does_not_wait_again_for_slots_without_a_cpu(
    on_ray: RayExecutor, free_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job of Ray uses one of two CPUs. The first run says that it goes on without it."""
    monkeypatch.setattr(slots_module, "_SECONDS_FOR_OTHERS", 2.0)
    messages: list[str] = []

    class Other:
        def pid(self) -> int:
            return os.getpid()

    other = import_ray().remote(num_cpus=1)(Other).remote()
    import_ray().get(other.pid.remote())
    assert small.run(on_ray, log=messages.append).x_sha256 == small.run().x_sha256
    assert [message for message in messages if message.startswith("1 of 2 workers")]
    messages.clear()
    monkeypatch.setattr(slots_module, "_SECONDS_FOR_OTHERS", 60.0)
    began = time.monotonic()
    assert small.run(on_ray, log=messages.append).x_sha256 == small.run().x_sha256
    assert time.monotonic() - began < 30
    import_ray().kill(other)


@pytest.fixture(scope="module")
def other_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a copy of the package that has another version."""
    root = tmp_path_factory.mktemp("other")
    shutil.copytree(Path(fedopt.__file__).parent, root / "fedopt", ignore=shutil.ignore_patterns("*.pyc"))
    (root / "fedopt" / "version.py").write_text('"""The version."""\n\n__version__ = "0.0.7"\n')
    return root


@pytest.mark.slow  # starts four nodes with other environments
def test_differences_of_all_nodes_are_in_one_message(
    cluster: LoopbackCluster,
    on_ray: RayExecutor,
    other_version: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is found through an environment variable, which differs between the nodes."""
    here, other, missing = (tmp_path / name for name in ("store", "other", "missing"))
    write_small_store(here)
    write_small_store(other, notes={"imported": "twice"})
    monkeypatch.setenv(STORE, str(here))
    task = replace(small.SMALL, federation=stored_federation)
    old = {"PYTHONPATH": str(other_version), "ATEN_CPU_CAPABILITY": "default"}
    variables = [old, {STORE: str(missing)}, {STORE: str(other)}]
    nodes = [cluster.add(env_vars=values) for values in variables]
    try:
        with pytest.raises(ClusterError) as caught:
            small.run(on_ray, settings={"clients_per_round": 1}, task=task)
    finally:
        for node in nodes:
            cluster.kill(node)
    message = str(caught.value)
    assert "\n" not in message
    for node, texts in zip(
        nodes, [["fedopt 0.0.7", "cpu DEFAULT"], [str(missing)], ["another store"]], strict=True
    ):
        [name] = [name for name in caught.value.nodes if node.node_id[:8] in name]
        about_node = message.partition(name)[2].partition("; ")[0]
        assert all(text in about_node for text in texts)
    assert small.run(on_ray).x_sha256 == small.run().x_sha256


def test_nodes_with_another_cpu_are_used_and_reported_once_in_each_run(
    on_ray: RayExecutor, cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "processor_model", lambda: "Imaginary family 0 model 0")
    for _ in range(2):
        messages: list[str] = []
        assert small.run(on_ray, log=messages.append).x_sha256 == small.run().x_sha256
        reports = [text for text in messages if "has another CPU" in text]
        for node in cluster.workers():
            [report] = [text for text in reports if node.node_id[:8] in text]
            assert "instead of Imaginary family 0 model 0" in report
