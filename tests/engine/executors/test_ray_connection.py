"""Connections to a Ray cluster, and addresses that cannot be used."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray_fixtures import LoopbackCluster
from user_project import SETTINGS, write_project

from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.executors.ray.connection import connected, import_ray
from fedopt.engine.executors.ray.executor import RayExecutor
from fedopt.errors import ClusterError, ConfigError, MissingExtra

pytestmark = pytest.mark.xdist_group("ray")
# What a command prints where nodes start slowly, for example on a busy machine.
SLOW_START = r"^(waiting for )?\d+ of \d+ workers of the Ray cluster( have not started; .*)?$"


@pytest.fixture
def disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process appears without a connection, as a new program."""
    monkeypatch.setattr(import_ray(), "is_initialized", lambda: False)


def refused(address: str) -> ClusterError:
    """Try to connect; it must fail within seconds."""
    began = time.monotonic()
    with pytest.raises(ClusterError) as caught, connected(address, 1):
        pass
    assert time.monotonic() - began < 15
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "nowhere.invalid:6379"])
def test_address_without_a_cluster_is_rejected_in_seconds(address: str, disconnected: None) -> None:
    """The message has the address as the user wrote it, not the one that Ray uses instead of 127.0.0.1."""
    error = refused(address)
    assert error.address == address and address in str(error)


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "127.0.0.1", "head"])
def test_address_of_another_form_is_rejected(address: str, disconnected: None) -> None:
    assert refused(address).address == address


def test_server_that_is_not_ray_is_rejected(disconnected: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert str(refused(f"127.0.0.1:{port}").address).endswith(f":{port}")


def test_program_that_is_connected_to_another_cluster_is_rejected(on_ray: RayExecutor) -> None:
    assert refused("127.0.0.1:1").address == "127.0.0.1:1"


def test_present_connection_is_found_by_another_name_of_this_machine(
    cluster: LoopbackCluster, on_ray: RayExecutor
) -> None:
    port = cluster.address.rpartition(":")[2]
    with connected(f"localhost:{port}", 1):
        assert import_ray().is_initialized()


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra) as caught:
        RayExecutor(1).start()
    assert (caught.value.package, caught.value.extra) == ("ray", "ray")


def test_other_version_of_ray_is_rejected(cluster: LoopbackCluster) -> None:
    """A process whose Ray has another version number tries to connect."""
    code = f"""
import ray
ray.__version__ = "1.2.3"
from fedopt.engine.executors.ray.connection import connected
with connected({cluster.address!r}, 1):
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert "ClusterError" in last and "1.2.3" in last and "different versions" in last


@pytest.mark.parametrize("options", [{"ray_address": "auto"}, {"ray_gpus": 1.0}])
def test_options_of_ray_need_its_executor(options: dict) -> None:
    with pytest.raises(ConfigError) as caught, open_executor(ExecutorOptions("serial", **options)):
        pass
    assert caught.value.keys == tuple(options)


@pytest.mark.parametrize("gpus", [0.0, -1.0, 1.5, float("nan"), float("inf")])
def test_share_of_a_gpu_that_ray_cannot_reserve_is_refused(gpus: float) -> None:
    with pytest.raises(ConfigError) as caught, open_executor(ExecutorOptions("ray", ray_gpus=gpus)):
        pass
    assert caught.value.keys == ("ray_gpus",)


def test_own_scaffold_task_runs_on_the_cluster(
    cluster: LoopbackCluster, free_cluster: None, tmp_path: Path
) -> None:
    """The project is copied to the nodes: they have another path. The command prints only its own lines."""
    project = write_project(tmp_path / "project", number=7)
    words = ["run", project.task, "--algorithm", "scaffold", "--rounds", "3", *SETTINGS, "--json"]
    serial = project.fedopt(*words, "--executor", "serial", "--out", tmp_path / "serial")
    on_cluster = project.fedopt(
        *words, "--executor", "ray", "--ray-address", cluster.address, "--out", tmp_path / "ray"
    )
    assert on_cluster.returncode == 0, on_cluster.stderr
    assert json.loads(on_cluster.stdout)["x_sha256"] == json.loads(serial.stdout)["x_sha256"]
    printed = re.sub(SLOW_START, "", on_cluster.stderr.replace(str(tmp_path), ""), flags=re.MULTILINE)
    assert "ray" not in printed.lower()


def test_usage_statistics_are_disabled(cluster: LoopbackCluster) -> None:
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
