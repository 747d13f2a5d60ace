"""Time that workers spend on client training and on forward and backward passes.

The engine calls `Problem.profile` around these sections, so the measured engine is the one of `fedopt run`.
A pass covers the model, the loss and autograd. Batches, local updates and messages are outside.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from fedopt.engine.problem import Problem


class WorkerTimes(NamedTuple):
    """Seconds of one round, summed over all workers."""

    clients: float  # training of clients
    passes: float  # forward and backward passes, a part of `clients`


@dataclass
class _PassTime:
    seconds: float = 0.0


_pass_time = _PassTime()  # of the client that this process trains


def with_timing(problem: Problem, directory: Path) -> Problem:
    """Return the problem with a hook that writes the times of each client to files in `directory`."""
    return replace(problem, profile=partial(_record, str(directory)))


@contextmanager
def _record(directory: str, section: str, t: int) -> Iterator[None]:
    if section == "client":
        _pass_time.seconds = 0.0
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    if section == "pass":
        _pass_time.seconds += seconds
    else:
        line = {"t": t, "client": seconds, "passes": _pass_time.seconds}
        os.write(_open_log(directory), f"{json.dumps(line)}\n".encode())


@cache
def _open_log(directory: str) -> int:
    """Open the log of this process. It stays open, because short rounds would measure the opening."""
    return os.open(
        Path(directory) / f"times-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
    )


def read_times(directory: Path, t: int) -> WorkerTimes:
    """Sum the times that the workers recorded in round `t`."""
    lines = [
        line
        for file in directory.glob("times-*.jsonl")
        for line in map(json.loads, file.read_text().splitlines())
        if line["t"] == t
    ]
    return WorkerTimes(sum(line["client"] for line in lines), sum(line["passes"] for line in lines))
