"""Where a worker's time goes: in forward and backward passes, in its clients, or elsewhere.

The clock is put around a problem's model and clients, so the engine that is measured is the one that
users run. A pass begins when the module is called and ends when autograd has the gradients; copying them
into a flat vector, batches, updates and messages are the engine's. Where a step does not go through the
module and autograd, the call for its gradient is taken instead, and the result says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedopt.algorithms.base import ClientResult, Vector, Work
from fedopt.engine.problem import Client, Problem

PASSES = "forward and backward passes"
CALLS = "gradient calls"


@dataclass
class _Clock:
    """Of one process, which trains one client at a time."""

    began: float | None = None
    passes: float = 0.0
    passes_seen: int = 0
    calls: float = 0.0
    calls_seen: int = 0

    def reset(self) -> None:
        self.began, self.passes, self.passes_seen, self.calls, self.calls_seen = None, 0.0, 0, 0.0, 0


_CLOCK = _Clock()


def clocked(problem: Problem, directory: Path) -> Problem:
    """The same problem, which leaves the times of its clients in `directory`."""
    return replace(
        problem,
        model=partial(_clocked_model, problem.model),
        wrap_client=partial(_clocked_client, str(directory)),
    )


def _clocked_model(build: Callable[[], nn.Module]) -> nn.Module:
    module = build()
    module.register_forward_pre_hook(_forward)
    return module


def _forward(module: nn.Module, inputs: Any) -> None:
    _CLOCK.began = time.perf_counter()


@contextmanager
def _autograd_watched() -> Iterator[None]:
    plain = torch.autograd.grad

    def grad(*arguments: Any, **options: Any) -> Any:
        found = plain(*arguments, **options)
        if _CLOCK.began is not None:
            _CLOCK.passes += time.perf_counter() - _CLOCK.began
            _CLOCK.passes_seen += 1
            _CLOCK.began = None
        return found

    torch.autograd.grad = grad
    try:
        yield
    finally:
        torch.autograd.grad = plain


class _ClockedWork:
    """A client's work as it is, with its gradient calls timed."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def gradient(self, x: Vector, batch: Any) -> Vector:
        start = time.perf_counter()
        found = self._work.gradient(x, batch)
        _CLOCK.calls += time.perf_counter() - start
        _CLOCK.calls_seen += 1
        return found


def _clocked_client(directory: str, client: Client) -> Client:
    return partial(_timed, directory, client)


def _timed(directory: str, client: Client, work: Work, *sent: Vector) -> ClientResult:
    _CLOCK.reset()
    start = time.perf_counter()
    with _autograd_watched():
        result = client(_ClockedWork(work), *sent)
    line = {
        "t": work.round.t,
        "steps": work.steps,
        "client": time.perf_counter() - start,
        "passes": _CLOCK.passes,
        "passes_seen": _CLOCK.passes_seen,
        "calls": _CLOCK.calls,
        "calls_seen": _CLOCK.calls_seen,
    }
    os.write(_book(directory), f"{json.dumps(line)}\n".encode())
    return result


@cache
def _book(directory: str) -> int:
    """Where this process writes, opened once: at every client it would be seen in the shortest rounds."""
    return os.open(
        Path(directory) / f"clock-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
    )


@dataclass(frozen=True)
class Spent:
    """Seconds of all workers together in one round."""

    clients: float
    computing: float | None  # None: the engine's steps cannot be seen from here
    of: str  # PASSES or CALLS


def spent(directory: Path, t: int) -> Spent:
    """What the workers of round `t` left."""
    lines = [
        line
        for file in directory.glob("clock-*.jsonl")
        for line in map(json.loads, file.read_text().splitlines())
        if line["t"] == t
    ]
    steps, clients = sum(line["steps"] for line in lines), sum(line["client"] for line in lines)
    for of, name in ((PASSES, "passes"), (CALLS, "calls")):
        if lines and sum(line[f"{name}_seen"] for line in lines) == steps:
            return Spent(clients, sum(line[name] for line in lines), of)
    return Spent(clients, None, CALLS)
