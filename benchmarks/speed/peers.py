"""Other simulators, each running as a process in its own environment.

`benchmarks/peers/NAME/run.py DIRECTORY WORKERS` reads the workload, runs one round and reports that it is
ready. Then it runs one round for each line on its standard input. Its replies are JSON objects, one per line.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedopt.algorithms import Vector
from fedopt.engine.torch_state import single_thread
from fedopt.errors import unknown
from fedopt.models import Flat

from .memory import PeakMemory
from .workload import BenchmarkWorkload

ROOT = Path(__file__).resolve().parents[2]  # of the repository
PEERS = ("pfl", "fedjax", "flower")
_STARTUP_SECONDS = 900.0  # limit for starting and for the first round
_ROUND_LIMIT = 20  # limit for a round, in multiples of the first round

_LOSS_EXAMPLES = 200
# Largest allowed difference between the losses after the first round, relative to our decrease and to our
# loss. Dropout masks differ, and FedJAX fills up the last batch. Otherwise only rounding errors remain.
_DECREASE_TOLERANCE, _LOSS_TOLERANCE = 0.25, 0.005


class PeerUnavailable(Exception):
    """A peer cannot be measured. The message is the reason."""


class PeerInstallation(NamedTuple):
    """Script and Python interpreter of a peer."""

    name: str
    script: Path
    python: Path


def parse_peers(text: str | None) -> list[str]:
    """Return the names in `--against a,b`, or all peers if the option is missing.

    >>> parse_peers("pfl, flower")
    ['pfl', 'flower']
    """
    if text is None:
        return list(PEERS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            raise unknown("peer", name, PEERS)
    return list(dict.fromkeys(names))


def find_peer(name: str) -> PeerInstallation:
    """Return the peer's installation, or raise `PeerUnavailable` with the command that installs it."""
    python = ROOT / ".peers" / name / "bin" / "python"
    if not python.exists():
        raise PeerUnavailable(f"not installed; python benchmarks/peers/setup.py {name}")
    return PeerInstallation(name, ROOT / "benchmarks" / "peers" / name / "run.py", python)


class PeerProcess:
    """A running peer. The constructor waits until its first round is done."""

    def __init__(self, installation: PeerInstallation, workload: Path, workers: int) -> None:
        self._log = workload / f"{installation.name}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "PYTHON"))}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [str(installation.python), str(installation.script), str(workload), str(workers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # a process group, so that its children can be ended with it
            )
        self._buffer = b""
        self._limit = _STARTUP_SECONDS
        try:
            with PeakMemory(self._process.pid) as peak:
                self.ready = self._receive()
        except BaseException:
            self.close(timeout=0.0)
            raise
        self.peak_megabytes = peak.megabytes
        self._limit = max(60.0, _ROUND_LIMIT * float(self.ready.get("seconds", 0.0)))

    def run_round(self) -> float:
        """Run the next round and return its duration in seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"round\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failure("ended") from None
        return float(self._receive()["seconds"])

    def _receive(self) -> dict[str, Any]:
        """Wait for the next JSON object from the peer."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._limit
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([self._process.stdout], [], [], remaining)[0]:
                raise self._failure(f"sent no reply for {self._limit:.0f} s")
            received = os.read(self._process.stdout.fileno(), 1 << 16)
            if not received:
                raise self._failure("ended")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise self._failure(f"sent an invalid reply: {line[:80]!r}")
        if "absent" in reply:
            raise PeerUnavailable(str(reply["absent"]))
        return reply

    def _failure(self, event: str) -> PeerUnavailable:
        """Build the error, with the last line of the peer's log."""
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        last_line = f" ({lines[-1].strip()[:200]})" if lines else ""
        return PeerUnavailable(f"its process {event}{last_line}")

    def close(self, timeout: float = 20.0) -> None:
        """Close the peer's input, wait for it to exit, then kill it and all processes that it started."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=timeout)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()


def compare_first_round(workload: BenchmarkWorkload, ours: Vector, file: Path) -> dict[str, Any]:
    """Compare the peer's model after one round with ours.

    Raise `PeerUnavailable` if the losses differ too much.
    """
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise PeerUnavailable(f"no model was written after the first round ({error})") from None
    if array.shape != tuple(workload.x.shape) or array.dtype != np.float32:
        raise PeerUnavailable(
            f"the peer's model has {array.size:,} parameters ({array.dtype}), ours has {len(workload.x):,}"
        )
    theirs = torch.from_numpy(array)
    initial_loss, our_loss, their_loss = (_mean_loss(workload, x) for x in (workload.x, ours, theirs))
    tolerance = _DECREASE_TOLERANCE * abs(initial_loss - our_loss) + _LOSS_TOLERANCE * our_loss
    if not abs(their_loss - our_loss) <= tolerance:
        raise PeerUnavailable(
            f"the first round is not equivalent: the loss goes from {initial_loss:.4g} to {their_loss:.4g}, "
            f"ours to {our_loss:.4g}"
        )
    moved = float((ours - workload.x).norm())
    distance = float((theirs - ours).norm()) / max(moved, 1e-30)
    return {"loss": their_loss, "our_loss": our_loss, "distance": distance}


def _mean_loss(workload: BenchmarkWorkload, x: Vector) -> float:
    """Return the mean loss on the first examples of each client, without dropout."""
    problem = workload.problem
    flat = Flat(problem.model())
    flat.module.eval()
    split = problem.federation().train
    rows = slice(0, max(1, _LOSS_EXAMPLES // len(split.ids)))
    losses: list[torch.Tensor] = []
    with single_thread(), torch.no_grad():
        flat.bind(x.clone())
        for client in range(len(split.ids)):
            arrays = tuple(torch.tensor(a[rows]) for a in split.client(client))
            inputs, targets = problem.prepare(arrays, None)
            losses.append(problem.loss(flat.module(inputs), targets).reshape(-1))
    return float(torch.cat(losses).mean())
