"""Shared by the peers' scripts: read the workload, run a round on request and reply.

It needs only the standard library and NumPy, so that it runs in every peer's environment.
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
class PeerWorkload:
    """One round of one task, written by `benchmarks/speed/workload.py`."""

    directory: Path
    workers: int
    settings: dict[str, Any]  # task, batch_size, client_lr, server_lr, reduction, parameters, count, clients
    x: np.ndarray  # (count,): all parameters, concatenated
    cohort: list[tuple[np.ndarray, np.ndarray]]  # inputs and targets of each client

    @property
    def task(self) -> str:
        return str(self.settings["task"])

    @property
    def ids(self) -> list[str]:
        return [client["id"] for client in self.settings["clients"]]

    def parameters(self) -> Arrays:
        """Return the initial parameters by name, in the order of `x`."""
        parameters, start = {}, 0
        for name, shape in self.settings["parameters"]:
            size = int(np.prod(shape, dtype=np.int64))
            parameters[name] = self.x[start : start + size].reshape(shape).copy()
            start += size
        assert start == self.settings["count"] == len(self.x)
        return parameters

    def write_x(self, peer: str, parameters: Arrays) -> None:
        """Write the model after the first round. fedopt compares it with its own."""
        vectors = []
        for name, shape in self.settings["parameters"]:
            assert list(parameters[name].shape) == list(shape), (name, parameters[name].shape, shape)
            vectors.append(np.asarray(parameters[name], dtype=np.float32).ravel())
        np.save(self.directory / f"{peer}_x.npy", np.concatenate(vectors))


def read_workload(directory: str, workers: str) -> PeerWorkload:
    path = Path(directory)
    settings = json.loads((path / "work.json").read_text())
    with np.load(path / "cohort.npz", allow_pickle=False) as file:
        cohort = [(file[f"{i}_0"], file[f"{i}_1"]) for i in range(len(settings["clients"]))]
    return PeerWorkload(path, int(workers), settings, np.load(path / "x.npy", allow_pickle=False), cohort)


class Channel:
    """The connection to fedopt. Replies are JSON; all other output is redirected to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, **reply: Any) -> None:
        self._out.write(json.dumps(reply) + "\n")
        self._out.flush()

    def wait_for_request(self) -> bool:
        """Wait for the next request. Return False when there are no more."""
        return sys.stdin.readline() == "round\n"

    def exit_as_absent(self, reason: str) -> None:
        """Report that the peer cannot run this workload, and exit."""
        self.send(absent=reason)
        sys.exit(0)


def versions(*packages: str) -> dict[str, str]:
    return {name: version(name) for name in packages}


def serve(
    channel: Channel, run_round: Callable[[], None], after_first: Callable[[], None], **ready: Any
) -> None:
    """Run one round to warm up, then one round for each request."""
    start = time.perf_counter()
    run_round()
    seconds = time.perf_counter() - start
    after_first()
    channel.send(seconds=seconds, **ready)
    while channel.wait_for_request():
        start = time.perf_counter()
        run_round()
        channel.send(seconds=time.perf_counter() - start)
