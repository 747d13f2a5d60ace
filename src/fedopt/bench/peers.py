"""Other simulators, each a process of its own in its own environment, that does a round when it is asked to.

`benchmarks/peers/NAME/run.py DIRECTORY WORKERS` reads the work, does one round, says that it is ready and
then does a round for every line it is sent. What it says are JSON objects, one a line.
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

import fedopt
from fedopt.bench.memory import Peak
from fedopt.errors import unknown

PEERS = ("pfl", "fedjax", "flower")
FIRST_ROUND = 900.0  # seconds that a peer may take to start and to do its first round
_PATIENCE = 20  # how many of its first rounds a round may take


class Absent(Exception):
    """There is no number for this peer, and why."""


class Side(NamedTuple):
    """Where a peer lives."""

    name: str
    script: Path
    python: Path


def parse_peers(text: str | None) -> list[str]:
    """The names in `--against a,b`; all of them if it is not given.

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


def peers_directory() -> Path | None:
    """`benchmarks/peers` of the repository that we are in, or from which fedopt is installed."""
    here, package = Path.cwd(), Path(fedopt.__file__).resolve()
    for root in (here, *here.parents, *package.parents):
        if (root / "benchmarks" / "peers" / "setup.py").is_file():
            return root / "benchmarks" / "peers"
    return None


def find(name: str, directory: Path | None) -> Side:
    """The peer's script and its Python, or `Absent` with the command that makes them."""
    if directory is None:
        raise Absent("its side is in benchmarks/peers of fedopt's repository; run this command there")
    root = directory.parent.parent
    side = Side(name, directory / name / "run.py", root / ".peers" / name / "bin" / "python")
    if not side.python.exists():
        raise Absent(f"not installed; python benchmarks/peers/setup.py {name}")
    return side


class Peer:
    """A peer at the work, with one round done."""

    def __init__(self, side: Side, work: Path, workers: int) -> None:
        self.name = side.name
        self._log = work / f"{side.name}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "PYTHON"))}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [str(side.python), str(side.script), str(work), str(workers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # it may start processes, which end with it
            )
        self._buffer = b""
        self._limit = FIRST_ROUND
        try:
            with Peak(self._process.pid) as peak:
                self.ready = self._said()
        except BaseException:
            self.close(patience=0.0)
            raise
        self.megabytes = peak.megabytes
        self._limit = max(60.0, _PATIENCE * float(self.ready.get("seconds", 0.0)))

    def round(self) -> float:
        """Seconds of one more round."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"round\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed("ended") from None
        return float(self._said()["seconds"])

    def _said(self) -> dict[str, Any]:
        """The next object that the peer says."""
        assert self._process.stdout is not None
        until = time.monotonic() + self._limit
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise self._failed(f"said nothing for {self._limit:.0f} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise self._failed("ended")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            said = json.loads(line)
        except ValueError:
            raise self._failed(f"said {line[:80]!r}") from None
        if not isinstance(said, dict):
            raise self._failed(f"said {line[:80]!r}")
        if "absent" in said:
            raise Absent(str(said["absent"]))
        return said

    def _failed(self, how: str) -> Absent:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        last = f" ({lines[-1].strip()[:200]})" if lines else ""
        return Absent(f"its process {how}{last}")

    def close(self, patience: float = 20.0) -> None:
        """End the peer and whatever it started; it has some seconds to do so itself."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # the end of its input is the end of its work
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=patience)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
