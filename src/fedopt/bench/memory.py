"""Memory of a process and all that it started, with pages that they share counted once."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

KIND = "PSS"  # proportional set size: a page shared by two processes counts half in each
_EVERY = 0.05  # seconds between two looks


def family(pid: int) -> list[int]:
    """A process and all its descendants, as far as they are visible."""
    found, waiting = [], [pid]
    while waiting:
        at = waiting.pop()
        found.append(at)
        for children in Path(f"/proc/{at}/task").glob("*/children"):
            try:
                waiting += [int(child) for child in children.read_text().split()]
            except OSError:
                continue  # it has ended
    return found


def megabytes(pids: list[int]) -> float | None:
    """Their summed PSS; None where the system does not tell."""
    total, seen = 0, False
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        seen = True
    return total / 1024 if seen else None


class Peak:
    """The largest sum that was seen while the block ran; of all descendants, or of the processes named."""

    def __init__(self, pid: int, only: list[int] | None = None) -> None:
        self._pid, self._only = pid, only
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes: float | None = None

    def _look(self) -> None:
        found = megabytes(self._only if self._only is not None else family(self._pid))
        if found is not None:
            self.megabytes = max(found, self.megabytes or 0.0)

    def _watch(self) -> None:
        while not self._over.is_set():
            start = time.monotonic()
            self._look()
            # Looking takes time from what is looked at: never more than a tenth of it.
            self._over.wait(max(_EVERY, 9 * (time.monotonic() - start)))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()
