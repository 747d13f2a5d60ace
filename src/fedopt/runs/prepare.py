"""From a request to a run that can be executed. The API, the command line and the sweep start here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.algorithms import AlgorithmChoice, algorithm_name
from fedopt.data.store.locations import data_source
from fedopt.engine.executors import AUTO, ExecutorOptions
from fedopt.engine.initial_model import InitialModel
from fedopt.engine.problem import Problem
from fedopt.errors import ConfigError
from fedopt.models.fixed_state import FixedState
from fedopt.runs.build_problem import build_problem
from fedopt.runs.config import Config
from fedopt.runs.resolve import parse_settings, resolve
from fedopt.runs.weights import fresh_model, read_weights, weights_checksum
from fedopt.tasks import TASKS, Task, find_task, task_name

_OWN_OPTIONS = ("rounds", "seed")  # settings with an option of their own on the command line


class PreparedRun(NamedTuple):
    """Everything that `execute` needs."""

    config: Config
    problem: Problem
    better: str = "higher"  # whether a "higher" or a "lower" metric is better
    initial: InitialModel | None = None  # None: the seed decides

    def with_fixed_state(self, fixed: FixedState) -> PreparedRun:
        """Return the run with these frozen parameters and buffers."""
        return self._replace(problem=replace(self.problem, fixed=fixed))


@dataclass(frozen=True)
class RunRequest:
    """What a user asks for: a task, an algorithm and changes to the default configuration.

    Attributes:
        task: the task, its name or its reference.
        algorithm: the algorithm, its name or its reference.
        settings: configuration with dotted keys.
        data: "synthetic" (default), an imported dataset or its directory.
        init: file with the initial weights.
        executor: where clients train.
        tensorboard: whether event files are written.
        log: names of other loggers.
    """

    task: str | Task
    algorithm: AlgorithmChoice = "fedavg"
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    init: Path | None = None
    executor: ExecutorOptions = ExecutorOptions()
    tensorboard: bool = False
    log: tuple[str, ...] = ()

    def prepare(self) -> PreparedRun:
        """Resolve the configuration, read the initial weights and build the problem."""
        task = find_task(self.task)
        source = find_source(task, self.data)
        init = "seed" if self.init is None else weights_checksum(self.init)
        vectorised = self.executor.vectorised
        config = resolve(task, self.algorithm, self.settings, source, init=init, vectorised=vectorised)
        initial = None
        if self.init is not None:
            initial = read_weights(self.init, fresh_model(task, config), config.buffers)
        return PreparedRun(config, build_problem(task, config, self.algorithm), task.better, initial)

    @property
    def task_name(self) -> str:
        """The name of the task."""
        return task_name(self.task)

    @property
    def algorithm_name(self) -> str:
        """The name of the algorithm."""
        return algorithm_name(self.algorithm)

    def with_settings(self, **settings: Any) -> RunRequest:
        """Return the request with changed settings."""
        return replace(self, settings={**self.settings, **settings})

    def document(self) -> dict[str, Any]:
        """The request as plain values, with the names of objects."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        names = {"task": self.task_name, "algorithm": self.algorithm_name}
        init = None if self.init is None else str(self.init)
        return values | names | {"init": init, "executor": asdict(self.executor)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunRequest:
        """Return the request that `document` describes."""
        init, log = document["init"], tuple(document.get("log", ()))
        executor = ExecutorOptions(**document["executor"])
        init = None if init is None else Path(init)
        return cls(**{**document, "init": init, "executor": executor, "log": log})

    def command(self, out: Path) -> str:
        """The `fedopt run` command that reproduces this run in `out`.

        >>> RunRequest("so_lr", "fedavg", {"rounds": 5, "client.lr": 10.0}).command(Path("my runs"))
        "fedopt run so_lr --algorithm fedavg --rounds 5 --set client.lr=10.0 --out 'my runs'"
        """
        if not isinstance(self.task, str) or not isinstance(self.algorithm, str):
            return ""  # objects of a Python program have no command
        words = ["fedopt", "run", self.task, "--algorithm", self.algorithm]
        for key, value in self.settings.items():
            text = _setting_word(value)
            words += [f"--{key}", text] if key in _OWN_OPTIONS else ["--set", f"{key}={text}"]
        words += [] if self.data in (None, "synthetic") else ["--data", str(self.data)]
        words += [] if self.init is None else ["--init", str(self.init)]
        words += ["--tensorboard"] if self.tensorboard else []
        words += ["--log", ",".join(self.log)] if self.log else []
        if self.executor.vectorised in ("cpu", "compiled"):
            words += ["--executor", {"cpu": "vectorised"}.get(self.executor.vectorised, "compiled")]
        elif self.executor.vectorised is not None:
            words += ["--device", self.executor.vectorised]
        return shlex.join([*words, "--out", str(out)])


def with_chosen_executor(requests: Sequence[RunRequest]) -> tuple[list[RunRequest], str]:
    """Replace the executor "auto" of some requests by the one that suits all of them.

    Return the requests and a line with the choice and its reason; "" if they name their executor.
    """
    executor = requests[0].executor
    if executor.name != AUTO:
        return list(requests), ""
    if executor.vectorised is not None:  # on a device other than the CPU
        name, reason = "vectorised", f"the device is {executor.vectorised}"
    else:
        from fedopt.engine.executors.choice import choose_executor

        choices = [choose_executor(request.prepare().problem) for request in requests]
        name, reason = next((choice for choice in choices if choice[0] != "compiled"), choices[0])
    chosen = replace(executor, name=name)
    return [replace(request, executor=chosen) for request in requests], f"executor {name}: {reason}"


def _setting_word(value: object) -> str:
    """A value as `--set` reads it. A string that would be read as another type is quoted.

    >>> _setting_word(True), _setting_word(0.1), _setting_word("as_run"), _setting_word("10")
    ('true', '0.1', 'as_run', '"10"')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_same = not isinstance(value, str) or parse_settings([f"key={text}"])["key"] == value
    return text if is_same else json.dumps(value)


def find_source(task: Task, data: str | None) -> str:
    """The source of a task's data: "synthetic", the directory of an imported dataset, or "own"."""
    if TASKS.get(task.name) is task:
        return data_source(data or "synthetic")
    if data is not None:
        raise ConfigError(
            f"data selects the data of a built-in task; {task.name} has its own clients, so leave data out",
            keys=("data",),
        )
    return "own"
