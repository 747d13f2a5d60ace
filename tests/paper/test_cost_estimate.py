"""Estimates of time and disk space, and their listing."""

from __future__ import annotations

import io
import shutil
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reproduction_runs import make_plan, make_reader
from rich.console import Console

from fedopt.engine.worker import Worker
from fedopt.errors import DiskError
from fedopt.runs.client_table import DiskTable
from fedopt_paper.artifacts.registry import ARTIFACTS
from fedopt_paper.cost_estimate import (
    StepTimes,
    largest_run,
    measure_step_times,
    print_list,
    run_bytes,
    run_seconds,
    runs_that_fit_on_disk,
    total_seconds,
)
from fedopt_paper.scales import SCALES, SMOKE, ReproductionScale

Usage = namedtuple("Usage", "total used free")


def test_time_is_rounds_times_cohort_times_steps_over_the_cores() -> None:
    run = make_plan(scale=SMOKE).published("so_lr", "fedavg")
    times = StepTimes(0.5, 1.0)
    # 3 rounds x 2 clients x 1 step x 0.5 s, 4 evaluations of 100 examples at 1 s per 100, 0.6 s to start
    assert run_seconds(run, times) == pytest.approx(0.6 + 3.0 + 4.0)
    assert total_seconds([run, run], {"so_lr": times}, 2) == pytest.approx(7.6)


@pytest.mark.parametrize(("scale", "steps"), [(SMOKE, 1), (replace(SMOKE, steps=4), 4)])
def test_scaffold_takes_longer_by_the_time_of_its_vectors(scale: ReproductionScale, steps: int) -> None:
    plan, times = make_plan(scale=scale), StepTimes(0.5, 1.0, scaffold_step=0.1, scaffold_client=0.25)
    fedavg, scaffold = (plan.sweep("so_lr", name)[0] for name in ("fedavg", "scaffold"))
    # 3 rounds x 2 clients x (0.25 s and 0.1 s for each step)
    added = 6 * (0.25 + 0.1 * steps)
    assert run_seconds(scaffold, times) - run_seconds(fedavg, times) == pytest.approx(added)
    total = total_seconds([fedavg, scaffold, fedavg], {"so_lr": times}, 1)
    assert total == pytest.approx(2 * run_seconds(fedavg, times) + run_seconds(scaffold, times))


def test_step_times_are_measured_for_each_task() -> None:
    tasks: list[str] = []
    times = measure_step_times(["so_lr"], tasks.append)
    assert tasks == ["so_lr"] == list(times)
    assert times["so_lr"].step > 0 and times["so_lr"].evaluation > 0
    # SCAFFOLD computes with five million dense numbers, FedAvg with the rows of the words.
    assert times["so_lr"].client("scaffold", 3) > 2 * times["so_lr"].client("fedavg", 3)
    assert times["so_lr"].parameters == 10_000 * 500 + 500  # words x tags, and a bias for each tag


def test_full_disk_does_not_prevent_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise DiskError("no space left")

    monkeypatch.setattr(DiskTable, "write", fail)
    assert measure_step_times(["so_lr"])["so_lr"].step > 0


def test_waiting_for_a_busy_machine_is_not_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for the CPU uses no CPU time, like one that sleeps."""
    run = Worker.run

    def wait_and_run(*arguments: Any) -> Any:
        time.sleep(0.3)
        return run(*arguments)

    monkeypatch.setattr(Worker, "run", wait_and_run)
    times = measure_step_times(["so_lr"])["so_lr"]
    assert 0 < times.step < 0.15  # two steps are timed together


def test_disk_space_is_checkpoints_and_one_row_per_visited_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = make_reader(tmp_path, "so_lr")
    scaffold, adam = (reader.plan.sweep("so_lr", name)[0] for name in ("scaffold", "fedadam"))
    d = 10_000 * 500 + 500  # words x tags, and a bias for each tag
    # two rounds of two clients of very many: 4 visited, 4 since the last checkpoint, x and c in it
    needed = 4 * d * (4 + 4 + 2)
    assert run_bytes(reader.trial(scaffold), d, 342_477) == pytest.approx(needed, rel=1e-4)
    assert run_bytes(reader.trial(adam), d, 342_477) == 4 * d * 3  # x, m and v
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, int(2.5 * needed)))
    assert runs_that_fit_on_disk(reader, scaffold) == 2
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, 1000))
    with pytest.raises(DiskError) as caught:
        runs_that_fit_on_disk(reader, scaffold)
    assert caught.value.path == tmp_path


def test_list_shows_the_disk_space_of_the_largest_run() -> None:
    times = {task: StepTimes(1.0, 1.0, parameters=1) for task in ARTIFACTS["performance"].tasks}
    times["cifar100"] = StepTimes(1.0, 1.0, parameters=10**9)
    # smoke: three rounds of two of 500 clients, 500 (1 - 0.996^3) = 5.98 rows; a checkpoint after the last
    # round only, so 6 more; x and c
    largest = largest_run(SCALES["smoke"], times)
    assert (largest["task"], largest["algorithm"]) == ("cifar100", "scaffold")
    assert largest["bytes"] == pytest.approx(4e9 * (5.976032 + 6 + 2))
    costs = dict.fromkeys(SCALES, {"runs": 7, "seconds": 30.0})
    estimates = {
        "artifacts": [{"name": name, "title": "", **costs} for name in ("heatmaps_cifar10", "tau")],
        "all": dict.fromkeys(SCALES, {"runs": 0, "seconds": 0.0}),
        "cores": 2,
        "largest_trial": dict.fromkeys(SCALES, largest),
    }
    text = io.StringIO()
    print_list(estimates, Console(file=text, width=300))
    assert "largest run: 55.9 GB (SCAFFOLD, CIFAR-100) at smoke" in text.getvalue()
    rows = {line.split()[0]: line.split()[1:] for line in text.getvalue().splitlines() if line.strip()}
    assert rows["tau"] == ["7", "30", "s"] * 3
    assert rows["heatmaps_cifar10"] == ["7", "30", "s", "no", "sweeps", "7", "30", "s"]  # small has no sweeps
