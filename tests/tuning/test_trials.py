"""Trials: directories, commands and completeness."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from records import make_record

from fedopt.runs.prepare import RunRequest
from fedopt.runs.resolve import parse_settings
from fedopt.tuning.trials import Trial, WorkItem, is_complete, is_finished, make_trial


def test_directory_depends_on_the_configuration_but_not_on_rounds(tmp_path: Path) -> None:
    def at(rate: float, **more: Any) -> Trial:
        return make_trial(tmp_path, "so_lr", "fedavg", {"client_lr": rate}, {"rounds": 5} | more)

    assert at(-1.0).config.client.lr == 0.1
    assert at(-1.0).path == at(-1.0, rounds=50).path
    assert len({at(-1.0).path, at(-2.0).path, at(-1.0, seed=1).path}) == 3


@pytest.mark.parametrize("value", ["10", "true", "as_run", "1e-3", '"', "", "a b", True, 5, 0.1 + 0.2, 1e-7])
def test_command_of_a_trial_parses_to_its_settings(value: Any) -> None:
    request = RunRequest("so_lr", "fedavg", {"key": value, "rounds": 7}, "some dir")
    words = shlex.split(request.command(Path("o")))
    assert words[:5] == ["fedopt", "run", "so_lr", "--algorithm", "fedavg"]
    read = parse_settings([words[words.index("--set") + 1]])["key"]
    assert (read, type(read)) == (value, type(value))
    assert words[words.index("--rounds") + 1] == "7" and words[words.index("--data") + 1] == "some dir"


@pytest.mark.parametrize(
    ("status", "done", "rounds", "expected"),
    [
        ("done", 5, 5, True),
        ("done", 5, 6, False),
        ("diverged", 3, 50, True),
        ("pruned", 5, 5, False),
        ("running", 5, 5, False),
        ("failed", 5, 5, False),
    ],
)
def test_trial_is_finished_when_it_has_all_rounds_or_diverged(
    status: str, done: int, rounds: int, expected: bool
) -> None:
    assert is_finished(make_record([1.0] * done, status), rounds) is expected


@pytest.mark.parametrize(
    ("status", "done", "until", "expected"),
    [
        ("pruned", 3, 3, True),
        ("running", 4, 3, True),
        ("running", 3, 3, False),  # the evaluation of round 3 may be missing
        ("interrupted", 3, 3, False),
        ("running", 2, 3, False),
        ("done", 9, 3, True),
        ("diverged", 1, 3, True),
        ("running", 9, 9, False),  # not finished: the final evaluation may be missing
        ("pruned", 9, 9, False),
        ("done", 9, 9, True),
    ],
)
def test_work_item_is_complete_when_its_rounds_are_recorded(
    tmp_path: Path, status: str, done: int, until: int, expected: bool
) -> None:
    trial = make_trial(tmp_path, "so_lr", "fedavg", {"client_lr": 0.0}, {"rounds": 9})
    assert is_complete(make_record([1.0] * done, status), WorkItem(trial, until)) is expected


def test_points_can_be_written_as_json(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, "so_lr", "fedavg", {"client_lr": -4.0, "client.epochs": 2}, {"rounds": 9})
    assert json.loads(json.dumps(trial.point)) == {"client_lr": -4.0, "client.epochs": 2}
    assert trial.label == "fedavg client_lr=-4 client.epochs=2"
