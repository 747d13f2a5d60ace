"""How often a run is evaluated: the default, and changes when a run is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_clients import make_task
from written import read_lines

import fedopt
from fedopt.engine.evaluate import is_evaluated
from fedopt.engine.loop import Step
from fedopt.runs.config import read_config
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

SMALL = {"clients_per_round": 3, "client.batch_size": 5, "checkpoint.every": 1}


@pytest.mark.parametrize("rounds", [8, 20, 30, 40, 60, 100, 150, 200, 500, 900, 1500, 4000])
def test_default_is_about_twenty_evaluations_and_every_50_rounds_of_a_long_run(rounds: int) -> None:
    config = resolve(TASKS["emnist_cr"], "fedavg", {"rounds": rounds})
    evaluated = [
        t for t in range(1, rounds + 1) if is_evaluated(t, rounds, config.eval.every, config.eval.last_every)
    ]
    if rounds <= 20:
        assert evaluated == list(range(1, rounds + 1))
    elif rounds < 1000:
        assert 15 <= len(evaluated) <= 30
    else:
        assert (config.eval.every, config.eval.last_every) == (50, 10)
    assert evaluated[-1] == rounds


def test_explicit_frequency_is_kept() -> None:
    assert resolve(TASKS["emnist_cr"], "fedavg", {"rounds": 8, "eval.every": 4}).eval.every == 4


def test_frequency_does_not_change_the_model_and_is_not_part_of_the_run(tmp_path: Path) -> None:
    """A run is stopped after round 3 of 6, and resumed with evaluations after every round."""
    task = make_task()
    rare, often = {"eval.every": 5, "eval.last_every": 100}, {"eval.every": 1}

    def stop(step: Step) -> object:
        return fedopt.STOP if step.position.round == 3 else None

    whole = fedopt.run(task, rounds=6, config=SMALL | often)
    fedopt.run(task, rounds=6, config=SMALL | rare, out=tmp_path / "run", callback=stop)
    resumed = fedopt.run(task, rounds=6, config=SMALL | often, out=tmp_path / "run")
    assert resumed.x_sha256 == whole.x_sha256
    assert [line["round"] for line in read_lines(tmp_path / "run", "test")] == [0, 4, 5, 6]
    assert read_config(tmp_path / "run" / "config.toml").eval.every == 1
    accuracies = {line["round"]: line["accuracy"] for line in whole.test}
    assert resumed.value == pytest.approx((accuracies[4] + accuracies[5] + accuracies[6]) / 3)


def test_extended_run_has_the_value_of_an_uninterrupted_run(tmp_path: Path) -> None:
    """The first 8 rounds are evaluated in every round, a run of 42 in every fourth."""
    task = make_task()
    whole = fedopt.run(task, rounds=42, config=SMALL)
    fedopt.run(task, rounds=8, config=SMALL, out=tmp_path / "run")
    extended = fedopt.run(task, rounds=42, config=SMALL, out=tmp_path / "run")
    assert len(extended.test) > len(whole.test)
    assert (extended.value, extended.x_sha256) == (whole.value, whole.x_sha256)


def test_finished_run_is_not_changed_by_another_frequency(tmp_path: Path) -> None:
    task = make_task()
    fedopt.run(task, rounds=3, config=SMALL, out=tmp_path / "run")
    before = (tmp_path / "run" / "config.toml").read_bytes()
    fedopt.run(task, rounds=3, config=SMALL | {"eval.every": 3}, out=tmp_path / "run")
    assert (tmp_path / "run" / "config.toml").read_bytes() == before
