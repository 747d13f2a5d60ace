"""Memory of a process and its descendants. Shared pages are counted once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

KIND = "PSS"  # proportional set size: a page shared by two processes counts half in each
_INTERVAL = 0.05  # seconds between two samples


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and its visible descendants."""
    pids, pending = [], [pid]
    while pending:
        current = pending.pop()
        pids.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                pending += [int(child) for child in children.read_text().split()]
            except OSError:
                continue  # the process has ended
    return pids


def total_megabytes(pids: list[int]) -> float | None:
    """Return the summed PSS of the processes, or None if the system does not provide it."""
    kilobytes, available = 0, False
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        available = True
    return kilobytes / 1024 if available else None


class PeakMemory:
    """Context manager that samples memory and keeps the largest value in `megabytes`.

    It measures a process with all its descendants, or only the processes in `only`.
    """

    def __init__(self, pid: int, only: list[int] | None = None) -> None:
        self._pid, self._only = pid, only
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.megabytes: float | None = None

    def _sample(self) -> None:
        now = total_megabytes(self._only if self._only is not None else process_tree(self._pid))
        if now is not None:
            self.megabytes = max(now, self.megabytes or 0.0)

    def _run(self) -> None:
        while not self._stopped.is_set():
            start = time.monotonic()
            self._sample()
            # Sampling slows down the measured processes, so it takes at most a tenth of the time.
            self._stopped.wait(max(_INTERVAL, 9 * (time.monotonic() - start)))

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._sample()
