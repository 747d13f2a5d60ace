"""TensorBoard event files: the lines of metrics.jsonl again, in RUN/tensorboard, with the round as step.

The file is a function of the lines and of when the run was started. So a continued run writes it anew from
the lines it goes on from, and no step is lost or there twice.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from fedopt.errors import UserError
from fedopt.files import disk_errors
from fedopt.runs.records import number

NOT_SCALARS = ("round", "split", "seconds")
FOLDER = "tensorboard"


def installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def require() -> None:
    """Refuse before anything is run if event files cannot be written."""
    if not installed():
        raise UserError(
            "event files need the package tensorboard, which is not installed: "
            "pip install 'fedopt[tensorboard]', or leave out --tensorboard"
        )


class EventFile:
    """Adds lines of metrics to RUN/tensorboard; one event a line, flushed at once."""

    def __init__(self, run: Path, started: str, lines: Iterable[dict[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._started = datetime.fromisoformat(started).timestamp()
        folder = run / FOLDER
        self._path = folder / f"events.out.tfevents.{self._started:.0f}.fedopt"
        aside = folder / f".{self._path.name}.new"
        with disk_errors(self._path):
            folder.mkdir(exist_ok=True)
            self._file = open(aside, "wb")
        try:
            self._records = RecordWriter(self._file)
            self._write(Event(wall_time=self._started, file_version="brain.Event:2"))
            for line in lines:
                self._write(self._event(line))
            with disk_errors(self._path):
                self._file.flush()
                aside.replace(self._path)
        except BaseException:
            with suppress(OSError):  # it flushes once more
                self._file.close()
            aside.unlink(missing_ok=True)
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
