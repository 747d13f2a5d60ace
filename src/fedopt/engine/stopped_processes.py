"""Worker processes that were stopped, for example by SIGSTOP, and do not continue.

A worker that stays stopped for `SECONDS` seconds is killed. It is then replaced like any worker that died.
Stopped processes are recognised on Linux only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SECONDS = 30


class StoppedProcesses:
    """Counts for how long processes have been stopped. Call `kill_stopped` at least once per second."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._last_check = 0.0

    def kill_stopped(self, pids: Iterable[int]) -> None:
        """Kill those processes that were stopped in each of the last `SECONDS` checks, one per second.

        Checks are counted instead of seconds, so that nothing happens when a terminal stops and continues
        this process together with its workers.
        """
        now = time.monotonic()
        if now - self._last_check < 1.0:
            return
        self._last_check = now
        self._counts = {pid: self._counts.get(pid, 0) + 1 for pid in pids if is_stopped(pid)}
        for pid, count in self._counts.items():
            if count > SECONDS:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("T", "t")  # the name before it may contain anything


def continue_stopped(pids: Iterable[int]) -> None:
    """Continue stopped processes, so that they can end. Others are not affected."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
