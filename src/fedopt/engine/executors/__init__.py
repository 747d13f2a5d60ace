"""Executors run the clients of a round.

serial       in this process, one client after the other
processes    in worker processes with one thread each; equal to `serial` to the bit
vectorised   many clients at once on one device; equal to `serial` up to rounding
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.errors import UserError, unknown

EXECUTORS = ("processes", "serial", "vectorised")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def open_executor(name: str, workers: int | None, device: str | None = None) -> Iterator[Executor]:
    """Open the executor `name`, or a vectorised one if `device` is given, and close it at the end."""
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if workers is not None and workers < 1:
        raise UserError(f"workers must be at least 1, got {workers}")
    executor: Executor
    if device or name == "vectorised":
        from fedopt.engine.executors.vectorised import Vectorised

        executor = Vectorised(device or "cpu")
    elif name == "serial":
        executor = Serial()
    else:
        from fedopt.engine.executors.processes import Processes

        executor = Processes(workers or available_cores())
    try:
        yield executor
    finally:
        executor.close()
