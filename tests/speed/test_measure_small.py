"""Measurement of a small workload on several executors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from speed.measure_task import SpeedOptions
from speed.workload import WORKLOADS

from speed import measure_task


def test_small_workload_is_measured_on_each_of_its_executors(monkeypatch):
    definition = replace(WORKLOADS["small_lr"], executors=("vectorised", "serial"))
    monkeypatch.setattr(measure_task, "WORKLOADS", {"small_lr": definition})
    monkeypatch.setattr(measure_task, "_MEASURED_SECONDS", 0.01)
    options = SpeedOptions(repeats=2, workers=2, seconds=60.0)
    numbers = measure_task.measure_task("small_lr", options, lambda message: None)
    assert (numbers["executor"], list(numbers["executors"])) == ("vectorised", ["vectorised", "serial"])
    assert numbers["executors"]["vectorised"]["seconds"] == numbers["seconds"]
    assert numbers["steps_per_client"] == [10] * 10 and numbers["examples_per_client"] == [100] * 10
    assert numbers["parameters"] == 610 and numbers["cut"] is None
    for times in numbers["executors"].values():
        low, high = times["seconds_range"]
        assert 0 < low <= times["seconds"] <= high
        assert times["rounds_per_s"] == pytest.approx(1 / times["seconds"])
    assert numbers["engine_share"] is None and numbers["waiting_share"] is None  # not recorded
