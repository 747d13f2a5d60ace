"""Sweeps whose trials run on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray_fixtures import LoopbackCluster
from sweeps import read_states, recorded_rounds, started, sweep_words, wait_for

from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import ConfigError, UnknownName
from fedopt.tuning.backends import check_trial_executor

pytestmark = pytest.mark.xdist_group("ray")


def test_sweep_on_the_cluster_has_the_results_of_worker_processes(
    finished: Any, cluster: LoopbackCluster, free_cluster: None, tmp_path: Path
) -> None:
    """A node is killed during the sweep; its trial continues on the other one."""
    out = tmp_path / "sweep"
    words = sweep_words(
        "--out", out, "--executor", "ray", "--ray-address", cluster.address, algorithm="fedavg,fedadagrad"
    )
    with started(words) as process:
        wait_for(lambda: recorded_rounds(out) >= 1, seconds=60)
        cluster.kill(cluster.workers()[0])
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "raylet" not in stdout + stderr
    assert read_states(out) == read_states(finished.out)
    assert (out / "sweep.csv").read_text() == (finished.out / "sweep.csv").read_text()
    cluster.add()


def test_options_of_trials_are_checked() -> None:
    with pytest.raises(UnknownName) as unknown:
        check_trial_executor(ExecutorOptions("threads"))
    assert unknown.value.allowed == ("processes", "ray", "serial", "vectorised", "compiled")
    with pytest.raises(ConfigError) as caught:
        check_trial_executor(ExecutorOptions("processes", ray_address="auto"))
    assert caught.value.keys == ("ray_address",)
