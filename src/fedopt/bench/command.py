"""Measure the requested workloads one after the other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fedopt.bench.environment import current_commit, describe_machine
from fedopt.bench.measure_task import BenchOptions, measure_task
from fedopt.bench.peers import PeerUnavailable, find_peer, parse_peers, peers_directory
from fedopt.bench.workload_list import WORKLOADS
from fedopt.engine.executors import available_cores
from fedopt.errors import ConfigError, unknown
from fedopt.files import Log


def bench(
    tasks: list[str],
    against: str | None,
    repeats: int,
    workers: int | None,
    clients: int | None,
    steps: int | None,
    seconds: float,
    log: Log,
) -> dict[str, Any]:
    """Measure the tasks (default: all) and return the object that `--json` prints."""
    for name in tasks:
        if name not in WORKLOADS:
            raise unknown("task", name, WORKLOADS)
    for option, value in (("repeats", repeats), ("workers", workers), ("clients", clients), ("steps", steps)):
        if value is not None and value < 1:
            raise ConfigError(f"--{option} must be 1 or more, got {value}", keys=[option])
    peers, directory = parse_peers(against), peers_directory()
    absent = {}
    for name in list(peers):
        try:
            find_peer(name, directory)
        except PeerUnavailable as reason:
            absent[name] = str(reason)
            peers.remove(name)
            log(f"{name}: absent: {reason}")
    options = BenchOptions(peers, directory, repeats, workers or available_cores(), clients, steps, seconds)
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": current_commit(),
        "machine": describe_machine(),
        "workers": options.workers,
        "tasks": {},
    }
    for name in dict.fromkeys(tasks or WORKLOADS):
        numbers = measure_task(name, options, log)
        numbers["absent"] = absent | numbers["absent"]
        result["tasks"][name] = numbers
    return result
