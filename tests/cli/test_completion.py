"""Shell completion of tasks and algorithms."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedopt.algorithms import ALGORITHMS
from fedopt.cli.completion import (
    ALGORITHM_NAMES,
    TASK_NAMES,
    complete_algorithm,
    complete_algorithms,
    complete_task,
)
from fedopt.tasks import TASKS


def test_completion_knows_all_names() -> None:
    assert TASK_NAMES == tuple(TASKS)
    assert ALGORITHM_NAMES == tuple(ALGORITHMS)


def test_names_are_completed() -> None:
    assert complete_task("so") == ["so_nwp", "so_lr"]
    assert complete_algorithm("fedad") == ["fedadagrad", "fedadam"]
    assert complete_algorithms("fedavg,scaf") == ["fedavg,scaffold"]
    assert complete_algorithms("fedavg,fedavg") == ["fedavg,fedavgm"]


@pytest.mark.parametrize(
    ("words", "expected"), [("run emn", ["emnist_cr", "emnist_ae"]), ("rep", ["report", "reproduce"])]
)
def test_bash_receives_the_names_of_tasks_and_commands(words: str, expected: list[str]) -> None:
    """The command `reproduce` is an entry point of another package."""
    variables = {"_FEDOPT_COMPLETE": "complete_bash", "COMP_WORDS": f"fedopt {words}"}
    variables["COMP_CWORD"] = str(len(words.split()))
    code = "from fedopt.cli.app import app; app(prog_name='fedopt')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == expected
