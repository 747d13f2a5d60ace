"""The metrics of a run: lines in memory, in metrics.jsonl, in a TensorBoard event file and in loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from fedopt.engine.loop import Step
from fedopt.runs import tensorboard
from fedopt.runs.directory import RunDirectory
from fedopt.runs.loggers import LoggerGroup, RunLogger
from fedopt.runs.tensorboard import EventFile

MetricsLine = dict[str, Any]


class MetricsLog:
    """All train and test lines of a run. New lines are also written to the run directory, if there is one."""

    def __init__(
        self,
        directory: RunDirectory | None,
        event_file: bool = False,
        loggers: Sequence[RunLogger] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Start with the lines that the directory holds. An existing event file is always continued.

        `loggers` receive the `config` and all new lines.
        """
        self._directory = directory
        self.train: list[MetricsLine] = []
        self.test: list[MetricsLine] = []
        self._events: EventFile | None = None
        if directory is not None:
            self.train, self.test = directory.read_metrics()
            exists = (directory.path / tensorboard.FOLDER).is_dir() and tensorboard.installed()
            if event_file or exists:
                lines = [*self.train, *self.test]
                self._events = EventFile(directory.path, directory.info["started"], lines)
        self._loggers = LoggerGroup(loggers, config or {}, directory.path if directory else None)

    def add(self, line: MetricsLine) -> None:
        (self.train if line["split"] == "train" else self.test).append(line)
        if self._directory:
            self._directory.append_metrics(line)
        if self._events:
            self._events.add(line)
        self._loggers.add(line)

    def close(self) -> None:
        try:
            if self._events:
                self._events.close()
        finally:
            self._loggers.close()


def metrics_lines(step: Step, seconds: float) -> list[MetricsLine]:
    """The lines of metrics.jsonl for a step. Values that are not finite become null."""
    lines, done = [], step.position.round
    if step.report is not None:
        assert step.rates is not None
        report = step.report
        line: MetricsLine = {
            "round": done,
            "split": "train",
            "loss": None if report.loss is None else finite_or_none(report.loss),
            "clients": report.clients,
            "rejected": len(report.rejected),
            "skipped": report.skipped,
            "examples": report.examples,
            "bytes_down": report.bytes_down,
            "bytes_up": report.bytes_up,
            "bytes_total": step.position.bytes_total,
            "client_lr": step.rates[0],
            "server_lr": step.rates[1],
            "seconds": round(seconds, 3),
        }
        if report.rejected:
            line["rejected_clients"] = list(report.rejected[:10])
        lines.append(line)
    if step.evaluation is not None:
        values = {name: finite_or_none(value) for name, value in step.evaluation.items()}
        lines.append({"round": done, "split": "test", **values, "seconds": round(seconds, 3)})
    return lines


def finite_or_none(value: float) -> float | None:
    return value if isfinite(value) else None
