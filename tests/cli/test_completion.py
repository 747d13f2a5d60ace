"""Shell completion of tasks and algorithms."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_bash_receives_the_names_of_tasks() -> None:
    variables = {"_FEDOPT_COMPLETE": "complete_bash", "COMP_WORDS": "fedopt run emn", "COMP_CWORD": "2"}
    code = "from fedopt.cli.app import app; app(prog_name='fedopt')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["emnist_cr", "emnist_ae"]
