"""The report on runs that are still running. It is rendered again when a run changes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from fedopt.display.html import render_template
from fedopt.errors import RunDirectoryError, UserError
from fedopt.reporting.overview import default_title
from fedopt.reporting.page import render_report
from fedopt.runs.discover import find_runs, run_directories

WATCHED_FILES = ("run.json", "metrics.jsonl")


class LivePage:
    """The current report on all runs at or under some directories. Several threads may use it."""

    def __init__(self, paths: Sequence[Path], title: str | None = None) -> None:
        """Raises `RunDirectoryError` if a path is not a directory."""
        for path in paths:
            if not path.is_dir():
                raise RunDirectoryError(
                    f"{path} is not a directory; name a run, a comparison, a sweep or a directory of them",
                    path=path,
                )
        self._paths = list(paths)
        self._title = title
        self._lock = threading.Lock()
        self._rendered: tuple[str, str] | None = None  # version and page

    def version(self) -> str:
        """Return a text that changes when a run starts or writes."""
        states = []
        for path in self._paths:
            for directory in sorted(run_directories(path)):
                for name in WATCHED_FILES:
                    try:
                        status = (directory / name).stat()
                    except OSError:  # not written yet
                        continue
                    states.append(f"{directory / name} {status.st_size} {status.st_mtime_ns}")
        return hashlib.sha256("\n".join(states).encode(errors="surrogateescape")).hexdigest()[:16]

    def render(self) -> str:
        """Return the page as HTML, from memory if no run has changed."""
        with self._lock:
            version = self.version()
            if self._rendered is None or self._rendered[0] != version:
                self._rendered = (version, self._render(version))
            return self._rendered[1]

    def _render(self, version: str) -> str:
        empty = [path for path in self._paths if not any(run_directories(path))]
        waiting = f"Waiting for the first run in {', '.join(map(str, empty))}." if empty else ""
        try:
            records, damaged = find_runs([path for path in self._paths if path not in empty])
            left_out = f"Runs that cannot be read: {'; '.join(damaged)}" if damaged else ""
            notes = [note for note in (waiting, left_out) if note]
            if records:
                title = self._title or default_title(records)
                return render_report(records, title, version=version, notes=notes)
        except UserError as error:  # such as runs of several tasks
            notes = [str(error)]
        return render_template(
            "fedopt.reporting",
            "waiting.html.j2",
            title=self._title or f"fedopt watch {', '.join(map(str, self._paths))}",
            version=version,
            message=" ".join(notes),
        )
