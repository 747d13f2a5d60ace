"""From a request to a run that can be executed. The API, the command line and the sweep start here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.algorithms import ALGORITHMS, Algorithm, AlgorithmEntry, Vector
from fedopt.data.store.locations import data_source
from fedopt.engine.problem import Problem
from fedopt.errors import ConfigError, unknown
from fedopt.runs.build_problem import build_problem
from fedopt.runs.config import Config
from fedopt.runs.resolve import parse_settings, resolve
from fedopt.runs.weights import fresh_model, read_weights, weights_checksum
from fedopt.tasks import Task, find_task

BuildAlgorithm = Callable[[], Algorithm]
_OWN_OPTIONS = ("rounds", "seed")  # settings with an option of their own on the command line


class PreparedRun(NamedTuple):
    """Everything that `execute` needs."""

    config: Config
    problem: Problem
    better: str  # whether a "higher" or a "lower" metric is better
    initial: Vector | None  # None: the seed decides


@dataclass(frozen=True)
class RunRequest:
    """What a user asks for: a task, an algorithm and changes to the default configuration."""

    task: str | Task
    algorithm: str | Algorithm | BuildAlgorithm = "fedavg"
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted key -> value
    data: str | None = None  # "synthetic" (default), an imported dataset or its directory
    init: Path | None = None  # initial weights
    vectorised: str | None = None  # device on which clients train many at a time
    tensorboard: bool = False

    def prepare(self) -> PreparedRun:
        """Resolve the configuration, read the initial weights and build the problem."""
        task = find_task(self.task) if isinstance(self.task, str) else self.task
        if self.data is not None and task is self.task:
            raise ConfigError("data is an option of the named tasks; your own task has its clients already")
        source = data_source(self.data or "synthetic") if isinstance(self.task, str) else "own"
        name, entry, build = _find_algorithm(self.algorithm)
        init = "seed" if self.init is None else weights_checksum(self.init)
        config = resolve(task, name, self.settings, source, entry, init=init, vectorised=self.vectorised)
        initial = None
        if self.init is not None:
            initial = read_weights(self.init, fresh_model(task, config), config.buffers)
        return PreparedRun(config, build_problem(task, config, build), task.better, initial)

    def with_settings(self, **settings: Any) -> RunRequest:
        return replace(self, settings={**self.settings, **settings})

    def command(self, out: Path) -> str:
        """The `fedopt run` command that reproduces this run in `out`.

        >>> RunRequest("so_lr", "fedavg", {"rounds": 5, "client.lr": 10.0}).command(Path("my runs"))
        "fedopt run so_lr --algorithm fedavg --rounds 5 --set client.lr=10.0 --out 'my runs'"
        """
        words = ["fedopt", "run", str(self.task), "--algorithm", str(self.algorithm)]
        for key, value in self.settings.items():
            text = _setting_word(value)
            words += [f"--{key}", text] if key in _OWN_OPTIONS else ["--set", f"{key}={text}"]
        words += [] if self.data in (None, "synthetic") else ["--data", str(self.data)]
        words += [] if self.init is None else ["--init", str(self.init)]
        words += ["--tensorboard"] if self.tensorboard else []
        if self.vectorised == "cpu":
            words += ["--executor", "vectorised"]
        elif self.vectorised is not None:
            words += ["--device", self.vectorised]
        return shlex.join([*words, "--out", str(out)])


def _setting_word(value: object) -> str:
    """A value as `--set` reads it. A string that would be read as another type is quoted.

    >>> _setting_word(True), _setting_word(0.1), _setting_word("as_run"), _setting_word("10")
    ('true', '0.1', 'as_run', '"10"')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_same = not isinstance(value, str) or parse_settings([f"key={text}"])["key"] == value
    return text if is_same else json.dumps(value)


def _find_algorithm(
    algorithm: str | Algorithm | BuildAlgorithm,
) -> tuple[str, AlgorithmEntry, BuildAlgorithm | None]:
    """Name, registry entry and, for a user-defined algorithm, the function that builds it."""
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise unknown("algorithm", algorithm, ALGORITHMS)
        return algorithm, ALGORITHMS[algorithm], None
    build = partial(_constant, algorithm) if isinstance(algorithm, Algorithm) else algorithm
    entry = AlgorithmEntry("user-defined", "", build, clients=(), servers=())
    if isinstance(algorithm, Algorithm):
        return "own", entry, build
    if isinstance(algorithm, partial):  # its arguments identify the run
        arguments = [*map(repr, algorithm.args), *(f"{k}={v!r}" for k, v in algorithm.keywords.items())]
        return f"{getattr(algorithm.func, '__name__', 'own')}({', '.join(arguments)})", entry, build
    return getattr(algorithm, "__name__", "own"), entry, build


def _constant(algorithm: Algorithm) -> Algorithm:
    return algorithm
