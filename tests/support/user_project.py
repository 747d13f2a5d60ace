"""A user's project on disk: a task, an algorithm, and files that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PACKAGE = "user_project_"  # a number follows, because Python caches modules by name

TASKS = """
import numpy as np
import torch
from torch import nn

import fedopt


def points(name, n=12):
    rng = np.random.default_rng(sum(map(ord, name)))
    labels = rng.integers(0, 3, n)
    return (rng.normal(size=(n, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32), labels


def network():
    return nn.Linear(4, 3)


def task():
    clients = {f"c{k}": points(f"c{k}") for k in range(6)}
    return fedopt.own_task(network, nn.functional.cross_entropy, clients, points("test", 60), name="points")


ready = task()
number = 3


def needs(argument):
    return task()


def fails():
    raise ValueError("the disk is empty")
"""

ALGORITHMS = '''
from fedopt import Algorithm, algorithms


def scaled(*, scale: float = 1.0) -> Algorithm:
    """FedAvg with updates multiplied by `scale`."""

    def server(state, mean, round):
        return base.server(state, (scale * mean[0],), round)

    base = algorithms.fedopt(algorithms.sgd(), algorithms.sgd())
    return base._replace(server=server)


constant = scaled(scale=0.5)


def not_an_algorithm():
    return 3


def takes_reserved_name(*, batch_size: int = 3):
    return constant
'''

SETTINGS = ("--set", "clients_per_round=3", "--set", "client.batch_size=5", "--set", "checkpoint.every=1")


class Project(NamedTuple):
    root: Path  # the current directory of its commands
    package: str

    @property
    def task(self) -> str:
        return f"{self.package}.tasks:task"

    @property
    def algorithm(self) -> str:
        return f"{self.package}.algorithms:scaled"

    def fedopt(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own, in the directory of the project."""
        # -P: Python itself does not add the current directory to the path, as in the installed command.
        command = [sys.executable, "-P", "-m", "fedopt", *map(str, words)]
        return subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, timeout=120, env=dict(os.environ)
        )


def write_project(root: Path, number: int = 0) -> Project:
    package = f"{PACKAGE}{number}"
    folder = root / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "tasks.py").write_text(TASKS)
    (folder / "algorithms.py").write_text(ALGORITHMS)
    (folder / "broken.py").write_text("import fedopt\n\nvalue = undefined_name\n")
    (folder / "invalid.py").write_text("def task(:\n")
    (folder / "missing_package.py").write_text("import a_package_that_is_not_installed\n")
    return Project(root, package)
