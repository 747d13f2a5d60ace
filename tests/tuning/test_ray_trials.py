"""Sweeps whose trials run on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray_fixtures import LoopbackCluster
from sweeps import read_states, recorded_rounds, started, sweep_words, wait_for

from fedopt.engine.executors import ExecutorOptions
from fedopt.engine.executors.ray.connection import import_ray
from fedopt.errors import ConfigError, UnknownName, WorkerError
from fedopt.runs import checkpoint
from fedopt.runs.records import read_run
from fedopt.tuning.backends import check_trial_executor
from fedopt.tuning.ray_trials import RayTrials
from fedopt.tuning.trials import WorkItem, make_trial

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
        wait_for(lambda: recorded_rounds(out) >= 1, seconds=120)
        cluster.kill(cluster.workers()[0])
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "raylet" not in stdout + stderr
    assert read_states(out) == read_states(finished.out)
    assert (out / "sweep.csv").read_text() == (finished.out / "sweep.csv").read_text()
    cluster.add()


class _Shown:
    """Records what a progress line would show."""

    def __init__(self) -> None:
        self.rounds: list[int] = []

    def update(self, rounds: int, running: int) -> None:
        self.rounds.append(rounds)


def test_counter_that_answers_late_is_not_replaced(cluster: LoopbackCluster, free_cluster: None) -> None:
    shown = _Shown()
    with RayTrials(1, cluster.address, shown) as trials:  # type: ignore[arg-type]
        first = trials._counter
        first.add.remote()
        trials._show(1)  # its process is starting
        assert trials._counter is first
        wait_for(lambda: trials._show(1) or shown.rounds[-1] == 1, seconds=60)
        import_ray().kill(first)
        wait_for(lambda: trials._show(1) or trials._counter is not first, seconds=60)
        assert shown.rounds[-1] == 1  # a new counter continues


def test_interrupted_trial_writes_a_checkpoint_of_its_last_round(
    cluster: LoopbackCluster, free_cluster: None, tmp_path: Path
) -> None:
    """The nodes ignore SIGINT, by which Ray interrupts a task."""
    settings = {"rounds": 100_000, "client.steps": 1, "clients_per_round": 2, "checkpoint.every": 50_000}
    trial = make_trial(tmp_path / "trials", "synthetic_lr", "fedavg", {}, settings)
    with RayTrials(1, cluster.address, _Shown()) as trials:  # type: ignore[arg-type]
        item = WorkItem(trial, 100_000)
        task = trials._submit(item)
        wait_for(lambda: recorded_rounds(tmp_path) >= 1)
        trials._cancel({task: item})
    record = read_run(trial.path)
    assert record.status == "interrupted"
    assert record.rounds == max(checkpoint.rounds(trial.path / "checkpoints")) > 0


def test_error_outside_of_a_trial_is_reported_once(
    cluster: LoopbackCluster, free_cluster: None, tmp_path: Path
) -> None:
    item = SimpleNamespace(trial=SimpleNamespace(path=tmp_path / "trials" / "a"))
    with RayTrials(1, cluster.address, _Shown()) as trials:  # type: ignore[arg-type]
        trials._run_trial = import_ray().remote(lambda *args: 1 / 0)
        with pytest.raises(WorkerError) as caught:
            list(trials.run([item]))  # type: ignore[list-item]
    assert str(caught.value).endswith("ZeroDivisionError: division by zero")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_options_of_trials_are_checked() -> None:
    with pytest.raises(UnknownName) as unknown:
        check_trial_executor(ExecutorOptions("threads"))
    assert unknown.value.allowed == ("processes", "ray", "serial", "vectorised", "compiled", "auto")
    with pytest.raises(ConfigError) as caught:
        check_trial_executor(ExecutorOptions("processes", ray_address="auto"))
    assert caught.value.keys == ("ray_address",)
