"""A run's numbers as they come: lines of metrics.jsonl, and the means over the last of them."""

from __future__ import annotations

from math import isfinite
from typing import Any

from fedopt.engine.loop import Step
from fedopt.runs import tensorboard
from fedopt.runs.directory import RunDirectory
from fedopt.runs.tensorboard import EventFile

Line = dict[str, Any]


class Journal:
    """Keeps lines in the run directory, or in memory where there is none."""

    def __init__(self, directory: RunDirectory | None, event_file: bool = False) -> None:
        """Goes on after the lines that are there; a run that has an event file keeps it complete."""
        self._directory = directory
        self._lines: list[Line] = []
        self._events: EventFile | None = None
        if directory is None:
            return
        if event_file or ((directory.path / tensorboard.FOLDER).is_dir() and tensorboard.installed()):
            self._events = EventFile(directory.path, directory.info["started"], directory.lines())

    def add(self, line: Line) -> None:
        if self._directory:
            self._directory.log(line)
        else:
            self._lines.append(line)
        if self._events:
            self._events.add(line)

    def splits(self) -> tuple[list[Line], list[Line]]:
        """All train lines and all test lines."""
        lines = self._directory.lines() if self._directory else self._lines
        train, test = ([line for line in lines if line["split"] == name] for name in ("train", "test"))
        return train, test

    def close(self) -> None:
        if self._events:
            self._events.close()


def lines_of(step: Step, seconds: float) -> list[Line]:
    """A step as lines of metrics.jsonl; what is not finite is null there."""
    lines, done = [], step.position.round
    if step.report is not None:
        assert step.rates is not None
        report = step.report
        line: Line = {
            "round": done,
            "split": "train",
            "loss": None if report.loss is None else finite(report.loss),
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
        values = {name: finite(value) for name, value in step.evaluation.items()}
        lines.append({"round": done, "split": "test", **values, "seconds": round(seconds, 3)})
    return lines


def finite(value: float) -> float | None:
    """`value`, or None for JSON where it is not finite."""
    return value if isfinite(value) else None
