"""Loggers: send the metrics of a run to Weights & Biases, MLflow or an object of the user.

A resumed run continues its run in the service. RUN/loggers/NAME.jsonl records the service's id of the run and
the lines that were sent, so that each line is sent once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from fedopt.documents import parse_json
from fedopt.errors import ConfigError, RunError, missing_extra, one_line, unknown
from fedopt.files import disk_errors, open_without_links
from fedopt.runs import tensorboard
from fedopt.runs.records import number, read_run

FOLDER = "loggers"
NAMES = ("tensorboard", "wandb", "mlflow")
_PROJECT = "fedopt"  # default name of the project or experiment


class RunLogger(Protocol):
    """Receives the metrics of a run. `log` of `fedopt.run` accepts any object with these methods."""

    def start(self, config: Mapping[str, Any], directory: Path | None) -> None:
        """Begin, or resume, a run. `config` has dotted keys; `directory` is the run directory, if any."""

    def add(self, line: Mapping[str, Any]) -> None:
        """Log a line of metrics.jsonl: `round`, `split` and numbers; None if a number is not finite."""

    def close(self) -> None:
        """End the run. This is also called after an error."""


def check_loggers(names: Iterable[object]) -> None:
    """Raise an error for an unknown logger, or one whose package is not installed."""
    if isinstance(names, str):
        raise ConfigError(f"log is a string; pass a list, such as [{names!r}]", keys=("log",))
    for name in names:
        if not isinstance(name, str):
            if not all(callable(getattr(name, method, None)) for method in ("start", "add", "close")):
                raise ConfigError(
                    f"log: {type(name).__name__} has no methods start, add and close", keys=("log",)
                )
        elif name not in NAMES:
            raise unknown("logger", name, NAMES)
        elif name == "tensorboard":
            tensorboard.require()
        elif importlib.util.find_spec(name) is None:
            raise missing_extra(f"the logger {name}", _PACKAGES[name], name)


def create_loggers(loggers: Iterable[str | RunLogger]) -> list[RunLogger]:
    """The logger objects, without TensorBoard's, which belongs to the run directory."""
    check_loggers(loggers)
    loggers = list(loggers)
    return [
        _LOGGERS[logger]() if isinstance(logger, str) else logger
        for logger in loggers
        if logger != "tensorboard"
    ]


def other_loggers(names: Iterable[str]) -> tuple[str, ...]:
    """The names without "tensorboard"."""
    return tuple(name for name in names if name != "tensorboard")


class LoggerGroup:
    """The loggers of one run. An error in a logger ends the run with a message that names it."""

    def __init__(
        self, loggers: Sequence[RunLogger], config: Mapping[str, Any], directory: Path | None
    ) -> None:
        self._started: list[RunLogger] = []
        for logger in loggers:
            self._started.append(logger)
            self._call(logger, "start", config, directory)

    def add(self, line: Mapping[str, Any]) -> None:
        for logger in self._started:
            self._call(logger, "add", line)

    def close(self) -> None:
        for logger in self._started:
            self._call(logger, "close")

    def _call(self, logger: RunLogger, method: str, *arguments: Any) -> None:
        try:
            getattr(logger, method)(*arguments)
        except Exception as error:
            raise RunError(f"logger {type(logger).__name__}: {one_line(error)}") from error


class _SentLines:
    """The lines that a service has received, in RUN/loggers/NAME.jsonl."""

    def __init__(self, directory: Path | None, name: str) -> None:
        self.run_id: str | None = None
        self._sent: set[tuple[str, int]] = set()
        self._file: IO[str] | None = None
        if directory is None:
            return
        path = directory / FOLDER / f"{name}.jsonl"
        with disk_errors(path):
            path.parent.mkdir(exist_ok=True)
            for text in path.read_text().splitlines() if path.exists() else []:
                entry = _parse(text)
                if "run" in entry:
                    self.run_id = entry["run"]
                elif "round" in entry:
                    self._sent.add((entry["split"], entry["round"]))
            self._file = open(path, "a", opener=open_without_links)

    def set_run(self, run_id: str) -> None:
        if run_id != self.run_id:
            self.run_id = run_id
            self._write({"run": run_id})

    def is_new(self, line: Mapping[str, Any]) -> bool:
        return (line["split"], line["round"]) not in self._sent

    def add(self, line: Mapping[str, Any]) -> None:
        self._sent.add((line["split"], line["round"]))
        self._write({"split": line["split"], "round": line["round"]})

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()


def _parse(text: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = parse_json(text)
    except ValueError:  # a killed process may leave an incomplete last line
        return {}
    return entry


class _ServiceLogger(ABC):
    """Sends each line of a run once to a service."""

    name: str
    _sent: _SentLines

    def start(self, config: Mapping[str, Any], directory: Path | None) -> None:
        self._sent = _SentLines(directory, self.name)
        title = f"{config['task']} {config['algorithm']}" if directory is None else directory.name
        self._sent.set_run(self._open(config, directory, title, self._sent.run_id))
        if directory is not None:  # lines of rounds before the logger was used
            record = read_run(directory)
            for line in sorted(
                [*record.train, *record.test], key=lambda line: (line["round"], line["split"] == "test")
            ):
                self.add(line)

    def add(self, line: Mapping[str, Any]) -> None:
        if self._sent.is_new(line):
            values = {
                f"{line['split']}/{key}": value
                for key in line
                if key not in tensorboard.NOT_SCALARS and (value := number(line[key])) is not None
            }
            self._send(values, line["round"])
            self._sent.add(line)

    def close(self) -> None:
        try:
            self._end()
        finally:
            self._sent.close()

    @abstractmethod
    def _open(self, config: Mapping[str, Any], directory: Path | None, title: str, run_id: str | None) -> str:
        """Create a run in the service, or continue the run `run_id`. Return its id."""

    @abstractmethod
    def _send(self, values: Mapping[str, float], round: int) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


class WandbLogger(_ServiceLogger):
    """Weights & Biases. The variables WANDB_PROJECT, WANDB_MODE and so on apply."""

    name = "wandb"
    _run: Any = None

    def _open(self, config: Mapping[str, Any], directory: Path | None, title: str, run_id: str | None) -> str:
        import wandb

        if run_id is not None and directory is not None:
            # The folder of an offline run is named after the second; a second run would overwrite it.
            while any(directory.glob(f"wandb/*-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}")):
                time.sleep(0.05)
        run_id = run_id or uuid.uuid4().hex[:12]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=title,
            id=run_id,
            resume="allow",
            dir=directory,
            config=dict(config),
            reinit="create_new",
            settings=wandb.Settings(console="off"),  # the terminal belongs to the progress bar
        )
        return run_id

    def _send(self, values: Mapping[str, float], round: int) -> None:
        self._run.log(dict(values), step=round)

    def _end(self) -> None:
        if self._run is not None:
            self._run.finish()


class MlflowLogger(_ServiceLogger):
    """MLflow. The variables MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME apply."""

    name = "mlflow"
    _client: Any = None

    def _open(self, config: Mapping[str, Any], directory: Path | None, title: str, run_id: str | None) -> str:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = client = MlflowClient()
        if run_id is not None:
            client.update_run(run_id, status="RUNNING")
            return run_id
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = client.get_experiment_by_name(name)
        experiment_id = client.create_experiment(name) if experiment is None else experiment.experiment_id
        run_id = str(client.create_run(experiment_id, run_name=title).info.run_id)
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in config.items()])
        return run_id

    def _send(self, values: Mapping[str, float], round: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(key, value, now, round) for key, value in values.items()]
        self._client.log_batch(self._sent.run_id, metrics=metrics)

    def _end(self) -> None:
        if self._sent.run_id is not None:
            self._client.set_terminated(self._sent.run_id)


_LOGGERS: dict[str, type[_ServiceLogger]] = {"wandb": WandbLogger, "mlflow": MlflowLogger}
_PACKAGES = {"wandb": "wandb", "mlflow": "mlflow"}
