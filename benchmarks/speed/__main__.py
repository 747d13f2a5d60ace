"""Measure rounds per second, compared with matrix products and other simulators."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fedopt.engine.allocation import keep_freed_memory
from fedopt.engine.executors import available_cores
from fedopt.errors import ConfigError, FedoptError, UserError, unknown
from fedopt.files import Log

from .measure_task import SpeedOptions, measure_task
from .origin import MarkedBlock, current_commit, describe_machine
from .peers import PeerUnavailable, find_peer, parse_peers
from .result_table import markdown_lines, print_result
from .workload import WORKLOADS


def measure(tasks: Sequence[str], options: SpeedOptions, log: Log) -> dict[str, Any]:
    """Measure the tasks (default: all) one after the other. Return the object that `--json` prints."""
    for name in tasks:
        if name not in WORKLOADS:
            raise unknown("task", name, WORKLOADS)
    for key in ("repeats", "workers", "clients", "steps"):
        value = getattr(options, key)
        if value is not None and value < 1:
            raise ConfigError(f"--{key} must be 1 or more, got {value}", keys=[key])
    absent = {}
    for name in options.peers:
        try:
            find_peer(name)
        except PeerUnavailable as reason:
            absent[name] = str(reason)
            log(f"{name}: absent: {reason}")
    options = replace(options, peers=[name for name in options.peers if name not in absent])
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": current_commit(),
        "machine": describe_machine(),
        "workers": options.workers,
        "tasks": {},
    }
    for name in dict.fromkeys(tasks or WORKLOADS):
        numbers = measure_task(name, options, log)
        result["tasks"][name] = {**numbers, "absent": absent | numbers["absent"]}
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit codes are those of `fedopt`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK", help="the paper's tasks, small_lr or small_mlp; default: all")
    add("--against", metavar="A,B", help="pfl, fedjax, flower; default: all that are installed, '' for none")
    add("--repeats", type=int, default=5, help="measured rounds of each simulator")
    add("--workers", type=int, default=available_cores(), help="worker processes; default: one per core")
    add("--clients", type=int, help="clients per round; default: the workload's number")
    add("--steps", type=int, help="maximum steps per client; default: no maximum")
    add("--seconds", type=float, default=300.0, help="start no further repeat of a task after this time")
    add("--write", type=Path, metavar="FILE", help="write the table between the markers of this document")
    add("--json", action="store_true", help="print one JSON object instead of text")
    given = parser.parse_args(arguments)
    try:
        block = MarkedBlock(given.write, "bench") if given.write else None
        peers = parse_peers(given.against)
        options = SpeedOptions(peers, given.repeats, given.workers, given.clients, given.steps, given.seconds)
        result = measure(given.tasks, options, partial(print, file=sys.stderr, flush=True))
        if block is not None:
            block.write(markdown_lines(result))
    except FedoptError as error:
        kind = "error" if isinstance(error, UserError) else "failed"
        print(f"{kind}: {error}", file=sys.stderr)
        return error.exit_code
    if given.json:
        print(json.dumps(result))
    else:
        print_result(result)
    return 0


if __name__ == "__main__":
    keep_freed_memory()  # as `fedopt run` does
    sys.exit(main())
