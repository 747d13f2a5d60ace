"""Watch memory, open files, threads and shared memory of long runs: python benchmarks/load.py

    python benchmarks/load.py [NAME ...] [--write docs/reliability.md]

Runs real commands: 10,000 rounds of a tiny task, 1,000 clients per round, a population of 342,477 clients,
and a sweep of 300 trials. All processes of a command are sampled twice per second. The table compares the
median of the samples in the middle of the run, after the start, with that of the last tenth. With `--write`,
it replaces the text between the markers of the document.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from speed.memory import process_tree, total_megabytes
from speed.origin import MarkedBlock, describe_origin, measurement_origin

INTERVAL = 0.5  # seconds between samples
QUIET = ("--set", "eval.every=10000", "--set", "eval.sample=50", "--set", "checkpoint.every=100")
TINY = ("--set", "client.steps=1", "--set", "clients_per_round=4")
LOADS: dict[str, tuple[str, ...]] = {
    "10,000 rounds": ("run", "synthetic_lr", "--rounds", "10000", *QUIET, *TINY),
    "1,000 clients per round": (
        *("run", "synthetic_lr", "--rounds", "60", *QUIET, "--set", "client.steps=1"),
        *("--set", "data.clients=2000", "--set", "clients_per_round=1000"),
    ),
    "342,477 clients": ("run", "so_lr", "--rounds", "400", *QUIET, "--set", "client.steps=1"),
    "300 trials": (
        *("sweep", "synthetic_lr", "--algorithm", "fedavg", "--rounds", "5", "--grid"),
        *("client_lr=-2.75:0:0.25, server_lr=-3:3:0.25", *QUIET, *TINY),
    ),
}


class Sample(NamedTuple):
    """What all processes of a command use at one time."""

    memory: float  # MB, shared pages counted once
    files: int
    threads: int
    shared: float  # MB in /dev/shm


def take_sample(pid: int) -> Sample:
    pids = process_tree(pid)
    return Sample(
        total_megabytes(pids) or 0.0,
        sum(_count(f"/proc/{p}/fd") for p in pids),
        sum(_count(f"/proc/{p}/task") for p in pids),
        sum(_shared_megabytes(p) for p in pids),
    )


def _count(directory: str) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:  # the process has ended
        return 0


def _shared_megabytes(pid: int) -> float:
    """Shared memory that is resident in a process. Pages count in every process that maps them."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssShmem:")) / 1024


def watch(words: Sequence[str]) -> tuple[list[Sample], float]:
    """Run a command and return samples of it, and its duration in seconds."""
    samples: list[Sample] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "fedopt", *words, "--workers", "2", "--out", f"{scratch}/out"]
        with (
            open(Path(scratch) / "log.txt", "w") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as process,
        ):
            while process.poll() is None:
                samples.append(take_sample(process.pid))
                time.sleep(INTERVAL)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)} failed:\n{(Path(scratch) / 'log.txt').read_text()[-2000:]}")
    return samples, time.monotonic() - began


def format_row(name: str, samples: list[Sample], seconds: float) -> str:
    tenth = max(len(samples) // 10, 1)
    early, late = samples[4 * tenth : 5 * tenth], samples[-tenth:]

    def cell(field: str, digits: int) -> str:
        first, last = (median(getattr(sample, field) for sample in part) for part in (early, late))
        return f"{first:,.{digits}f} → {last:,.{digits}f}"

    cells = [
        name,
        f"{seconds:.0f} s",
        cell("memory", 0),
        cell("files", 0),
        cell("threads", 0),
        cell("shared", 1),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{'; '.join(LOADS)}; default: all")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write the table there")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in LOADS]:
        parser.error(f"unknown load {unknown[0]!r}; allowed: {'; '.join(LOADS)}")
    block = MarkedBlock(options.write, "load") if options.write else None
    lines = [
        f"{describe_origin(measurement_origin())}, two workers.",
        "",
        "| load | duration | memory, MB | open files | threads | shared memory, MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in options.names or LOADS:
        lines.append(format_row(name, *watch(LOADS[name])))
        print(lines[-1], flush=True)
    if block:
        block.write(lines)


if __name__ == "__main__":
    main()
