"""The training loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import small

from fedopt.algorithms.schedules import constant
from fedopt.engine.loop import Step, TrainingPlan, drive, start, train


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_rounds():
    """One vector of this model kept in each of 200 rounds would be 40 MB; 8 MB are allowed."""
    settings = {"model.hidden": 4000, "client.steps": 1}
    made, x = small.setup(settings=settings, cohort=4)
    assert 200 * 4 * len(x) > 40e6
    plan = TrainingPlan(250, constant(0.1), constant(1.0), 40, 10, 10, 5)
    memory: dict[int, int] = {}

    def observe(step: Step) -> bool:
        if step.position.round in (50, 250):
            memory[step.position.round] = resident_bytes()
        return False

    drive(train(made, plan, start(made.algorithm.init(x), plan), observe), made.executor)
    assert memory[250] - memory[50] < 8e6
