"""What the sides of all peers have in common: reading the work, and doing a round when asked to.

Needs the standard library and NumPy alone, so that it runs in every peer's environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Work:
    """One task's round (fedopt/experiments/bench/work.py writes it)."""

    directory: Path
    workers: int
    settings: dict[str, Any]  # task, batch_size, client_lr, server_lr, reduction, parameters, count, clients
    x: np.ndarray  # (count,): the parameters one after the other
    cohort: list[tuple[np.ndarray, np.ndarray]]  # inputs and targets of each client

    @property
    def task(self) -> str:
        return str(self.settings["task"])

    @property
    def ids(self) -> list[str]:
        return [client["id"] for client in self.settings["clients"]]

    def parameters(self) -> Arrays:
        """The initial parameters by name, in the order of `x`."""
        found, start = {}, 0
        for name, shape in self.settings["parameters"]:
            size = int(np.prod(shape, dtype=np.int64))
            found[name] = self.x[start : start + size].reshape(shape).copy()
            start += size
        assert start == self.settings["count"] == len(self.x)
        return found

    def write_x(self, peer: str, parameters: Arrays) -> None:
        """Leave the model after the first round, to be compared with fedopt's."""
        parts = []
        for name, shape in self.settings["parameters"]:
            assert list(parameters[name].shape) == list(shape), (name, parameters[name].shape, shape)
            parts.append(np.asarray(parameters[name], dtype=np.float32).ravel())
        np.save(self.directory / f"{peer}_x.npy", np.concatenate(parts))


def read_work(directory: str, workers: str) -> Work:
    path = Path(directory)
    settings = json.loads((path / "work.json").read_text())
    with np.load(path / "cohort.npz", allow_pickle=False) as file:
        cohort = [(file[f"{i}_0"], file[f"{i}_1"]) for i in range(len(settings["clients"]))]
    return Work(path, int(workers), settings, np.load(path / "x.npy", allow_pickle=False), cohort)


class Voice:
    """The line to fedopt: what it says is JSON; whatever else is printed goes to the log."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **what: Any) -> None:
        self._out.write(json.dumps(what) + "\n")
        self._out.flush()

    def asked(self) -> bool:
        """Wait for the next request; False when there will be none."""
        return sys.stdin.readline() == "round\n"

    def absent(self, why: str) -> None:
        """There is no such side: say so and leave."""
        self.say(absent=why)
        sys.exit(0)


def versions(*packages: str) -> dict[str, str]:
    return {name: version(name) for name in packages}


def serve(voice: Voice, round: Callable[[], None], after_first: Callable[[], None], **ready: Any) -> None:
    """The life of a side whose rounds are calls of a function: one to warm up, then one for each request."""
    start = time.perf_counter()
    round()
    seconds = time.perf_counter() - start
    after_first()
    voice.say(seconds=seconds, **ready)
    while voice.asked():
        start = time.perf_counter()
        round()
        voice.say(seconds=time.perf_counter() - start)
