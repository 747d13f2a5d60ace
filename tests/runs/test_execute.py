"""Executing runs: stopping at a round, shared data, locked directories."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
from run_cases import ROUNDS, train
from worker_pool import Pool
from written import read_info, read_lines

from fedopt.engine.executors.serial import Serial
from fedopt.engine.loop import Step
from fedopt.errors import Diverged, UserError
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.runs.shared_data import open_data


@pytest.mark.parametrize("case", ["fedyogi", "scaffold"])
@pytest.mark.parametrize("every", [1, 10])
def test_run_stopped_at_a_round_resumes_as_the_uninterrupted_run(case: str, every: int, tmp_path: Path):
    out = tmp_path / "run"
    partial_result = train(case, out, every, until=3)
    found = read_info(out)
    assert (found["status"], found["rounds"], found["rounds_done"]) == ("pruned", ROUNDS, 3)
    assert partial_result.rounds == 3 and partial_result.train_loss == found["train_loss"]
    assert [line["round"] for line in read_lines(out, "train")] == [1, 2, 3]
    seen: list[int] = []
    train(case, out, every, until=2, on_step=lambda step: seen.append(step.position.round))
    assert seen == [] and read_info(out)["status"] == "pruned", "round 2 was reached before"
    train(case, out, every, until=4)
    whole = train(case, out, every, until=ROUNDS, on_step=lambda step: seen.append(step.position.round))
    assert seen == [5]
    assert whole.x_sha256 == train(case, tmp_path / "whole", every).x_sha256
    assert read_lines(out) == read_lines(tmp_path / "whole")
    assert (
        read_info(out)["status"] == "done"
        and "message" not in read_info(out)
        and "rounds_done" not in read_info(out)
    )


def test_run_without_a_directory_stops_at_a_round():
    assert train("fedyogi", None, until=2).rounds == 2


def test_run_that_diverges_at_the_stop_has_diverged(tmp_path: Path):
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(24))))
    with pytest.raises(Diverged):
        small.run(settings={"rounds": 10, "patience": 3}, task=task, out=tmp_path / "run", until=3)
    assert read_info(tmp_path / "run")["status"] == "diverged"


class CountingFederation:
    """A federation that notes how often it is opened."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self, source: str) -> Any:
        small._note(str(self.log), os.getpid())
        return small.federation(source)


def count_openings(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_run_in_one_process_opens_its_data_once(tmp_path: Path):
    task = replace(small.SMALL, federation=CountingFederation(tmp_path / "log"))
    assert small.run(task=task).x_sha256 == small.run().x_sha256
    assert count_openings(tmp_path / "log") == 1


def test_each_worker_opens_the_data(pool: Pool, tmp_path: Path):
    task = replace(small.SMALL, federation=CountingFederation(tmp_path / "log"))
    assert small.run(pool(2), task=task).x_sha256 == small.run().x_sha256
    pids = (tmp_path / "log").read_text().split()
    assert len(pids) == len(set(pids)) == 3, "this process and two workers, once each"


def test_runs_with_shared_data_have_the_same_results(tmp_path: Path):
    task = replace(small.SMALL, federation=CountingFederation(tmp_path / "log"))
    settings = {"eval.sample": 30, "eval.every": 1}
    config = resolve(task, "fedavg", small.SETTINGS | settings)
    opened = open_data(build_problem(task, config), config.eval.sample)
    assert [len(column) for column in opened.sample] == [30, 30, 30]
    for algorithm, seed in (("fedavg", 0), ("fedyogi", 3)):
        changed = settings | {"seed": seed}
        shared = small.run(None, algorithm, changed, task, data=opened)
        alone = small.run(None, algorithm, changed)
        assert shared.x_sha256 == alone.x_sha256 and shared.value == alone.value
    assert count_openings(tmp_path / "log") == 1


def test_directory_in_use_is_refused(tmp_path: Path):
    def while_running(step: Step) -> None:
        with pytest.raises(UserError, match="in use by another fedopt process"):
            train("fedyogi", tmp_path / "run")

    train("fedyogi", tmp_path / "run", on_step=while_running)


def test_executor_can_be_used_for_several_runs(tmp_path: Path):
    executor = Serial()
    results = [
        small.run(executor, "scaffold", out=out) for out in (None, tmp_path / "a", None, tmp_path / "b")
    ]
    assert len({result.x_sha256 for result in results}) == 1
