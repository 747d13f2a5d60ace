"""TensorBoard event files in RUN/tensorboard: the lines of metrics.jsonl with the round as step.

A resumed run writes the file again from the existing lines. No step is lost or duplicated.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from fedopt.errors import missing_extra
from fedopt.files import disk_errors, open_without_links, temporary_path
from fedopt.runs.records import number

NOT_SCALARS = ("round", "split", "seconds")
FOLDER = "tensorboard"


def installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def require() -> None:
    """Raise an error if event files cannot be written."""
    if not installed():
        raise missing_extra("--tensorboard", "tensorboard", "tensorboard")


class EventFile:
    """Writes one event per line of metrics. Every event is flushed."""

    def __init__(self, run: Path, started: str, lines: Iterable[dict[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._started = datetime.fromisoformat(started).timestamp()
        folder = run / FOLDER
        self._path = folder / f"events.out.tfevents.{self._started:.0f}.fedopt"
        temporary = temporary_path(self._path)
        with disk_errors(self._path):
            folder.mkdir(exist_ok=True)
            self._file = open(temporary, "xb", opener=open_without_links)
        try:
            self._records = RecordWriter(self._file)
            self._write(Event(wall_time=self._started, file_version="brain.Event:2"))
            for line in lines:
                self._write(self._event(line))
            with disk_errors(self._path):
                self._file.flush()
                temporary.replace(self._path)
        except BaseException:
            with suppress(OSError):  # closing flushes again
                self._file.close()
            temporary.unlink(missing_ok=True)
            raise

    def add(self, line: dict[str, Any]) -> None:
        self._write(self._event(line))
        with disk_errors(self._path):
            self._file.flush()

    def close(self) -> None:
        with disk_errors(self._path):
            self._file.close()

    def _write(self, event: Any) -> None:
        with disk_errors(self._path):
            self._records.write(event.SerializeToString())

    def _event(self, line: dict[str, Any]) -> Any:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = {key: number(value) for key, value in line.items() if key not in NOT_SCALARS}
        scalars = [
            Summary.Value(tag=f"{line['split']}/{key}", simple_value=value)
            for key, value in values.items()
            if value is not None
        ]
        time = self._started + (number(line.get("seconds")) or 0.0)
        return Event(wall_time=time, step=line["round"], summary=Summary(value=scalars))
