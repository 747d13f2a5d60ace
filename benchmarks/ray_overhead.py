"""Measure what a round costs on Ray, compared with worker processes on the same cores.

    python benchmarks/ray_overhead.py [TASK ...] [--repeats 11] [--out FILE] [--write docs/distributed.md]

Both executors train the same cohort from the same weights on two cores. Their rounds alternate, and the first
round of each is not counted. The bytes are those of the vectors that leave and reach the driver. For the
killed node, a cluster of two one-core nodes on the loopback interface trains the first task. One node is
killed with SIGKILL in the middle of a round. With `--write`, the table replaces the text between the markers
of the document.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from speed.engine_rounds import EngineRounds
from speed.origin import MarkedBlock, describe_origin, measurement_origin
from speed.workload import BenchmarkWorkload, build_workload

from fedopt.engine.aggregate import BlockSum
from fedopt.engine.executors.ray import executor as ray_executor
from fedopt.engine.executors.ray.connection import SYSTEM_CONFIG, import_ray
from fedopt.files import write_atomically

# task -> clients and steps per client; None: those of the paper
TASKS: dict[str, tuple[int | None, int | None]] = {"emnist_cr": (None, None), "so_nwp": (20, 2)}
WORKERS = 2


class Traffic:
    """Bytes of vectors that the driver sends and receives."""

    def __init__(self) -> None:
        self.sent = self.received = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the vectors of all Ray executors in the block."""
        run = ray_executor.RayExecutor._run

        def counted(executor: Any, pieces: Any, sent: Any, *others: Any) -> Iterator[Any]:
            self.sent += sum(vector.nbytes for vector in sent)
            for answer in run(executor, pieces, sent, *others):
                self.received += size_of(answer)
                yield answer

        ray_executor.RayExecutor._run = counted  # type: ignore[method-assign]
        try:
            yield
        finally:
            ray_executor.RayExecutor._run = run  # type: ignore[method-assign]


def size_of(answer: Any) -> int:
    """Return the bytes of all vectors in the answer of a slot."""
    if isinstance(answer, np.ndarray | torch.Tensor):
        return int(answer.nbytes)
    if isinstance(answer, BlockSum):
        return sum(vector.nbytes for vector in answer.vectors())
    if isinstance(answer, dict):
        return sum(map(size_of, answer.values()))
    return sum(map(size_of, answer)) if isinstance(answer, list | tuple) else 0


def compare(workload: BenchmarkWorkload, repeats: int) -> dict[str, Any]:
    """Time rounds on worker processes and on Ray in alternation."""
    traffic = Traffic()
    started = time.perf_counter()
    processes = EngineRounds(workload, WORKERS, "processes", record_times=False)
    middle = time.perf_counter()
    on_ray = EngineRounds(workload, WORKERS, "ray", record_times=False)
    starts = middle - started, time.perf_counter() - middle
    if not torch.equal(processes.x_after_first_round, on_ray.x_after_first_round):
        raise SystemExit(f"{workload.name}: the results of both executors differ")
    times: list[tuple[float, float]] = []
    with traffic.counting():
        for _ in range(repeats):
            times.append((processes.run_round().seconds, on_ray.run_round().seconds))
            print(f"  {workload.name}: {times[-1][0]:.3f} s, {times[-1][1]:.3f} s", file=sys.stderr)
    processes.close()
    on_ray.close()
    first, second = (sorted(column) for column in zip(*times, strict=True))
    return {
        "task": workload.name,
        "clients": len(workload.examples),
        "steps": sum(workload.steps),
        "cut": workload.cut,
        "vector_bytes": workload.x.nbytes,
        "processes": median(first),
        "ray": median(second),
        "ratio": median(b / a for a, b in times),
        "ratios": sorted(b / a for a, b in times),
        "start_processes": starts[0],
        "start_ray": starts[1],
        "bytes_down": traffic.sent // repeats,
        "bytes_up": traffic.received // repeats,
    }


def kill_a_node(workload: BenchmarkWorkload, repeats: int) -> dict[str, float]:
    """Time rounds on two nodes, the round in which one is killed, and rounds on the other one."""
    ray = import_ray()
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # use the loopback interface
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": SYSTEM_CONFIG}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        ray.init(cluster.address, log_to_driver=False, logging_level="CRITICAL")
        rounds = EngineRounds(workload, WORKERS, "ray", record_times=False)
        before = median(rounds.run_round().seconds for _ in range(repeats))
        raylet = nodes[0].all_processes["raylet"][0].process.pid
        threading.Timer(before / 2, _kill_node, [raylet]).start()
        killed = rounds.run_round().seconds
        after = median(rounds.run_round().seconds for _ in range(repeats))
        rounds.close()
    finally:
        ray.shutdown()
        cluster.shutdown()
    return {"before": before, "killed": killed, "after": after}


def _kill_node(raylet: int) -> None:
    """Kill the main process of a node and its workers."""
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    for pid in (*map(int, children), raylet):
        os.kill(pid, signal.SIGKILL)


def format_table(result: dict[str, Any]) -> list[str]:
    killed = result["killed"]
    lines = [
        "",
        f"{describe_origin(result)}, Ray {result['ray']}; {WORKERS} workers, medians of "
        f"{result['repeats']} rounds of each executor in alternation.",
        "",
        "| task | clients | vector | `processes` | `ray` | ray / processes (quartiles) | sent per round | "
        "received per round | received per client | start |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["tasks"]:
        quarter = len(row["ratios"]) // 4
        low, high = row["ratios"][quarter], row["ratios"][-1 - quarter]
        megabytes = [row[key] / 1e6 for key in ("vector_bytes", "bytes_down", "bytes_up")]
        cells = [
            f"`{row['task']}`" + (f" ({row['cut']})" if row["cut"] else ""),
            f"{row['clients']}",
            f"{megabytes[0]:.1f} MB",
            f"{row['processes']:.3f} s",
            f"{row['ray']:.3f} s",
            f"{row['ratio']:.3f} ({low:.3f}-{high:.3f})",
            f"{megabytes[1]:.1f} MB",
            f"{megabytes[2]:.1f} MB",
            f"{megabytes[2] / row['clients']:.1f} MB",
            f"{row['start_ray']:.1f} s (processes {row['start_processes']:.1f} s)",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"A node killed in the middle of a round of `{result['tasks'][0]['task']}`: rounds took "
        f"{killed['before']:.2f} s on two nodes, the round of the kill {killed['killed']:.2f} s, and rounds "
        f"on the remaining node {killed['after']:.2f} s.",
        "",
    ]
    return lines


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"default: {', '.join(TASKS)}")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--out", type=Path, help="JSON file with all numbers")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write the table there")
    options = parser.parse_args(words)
    names = options.tasks or list(TASKS)
    if unknown := set(names) - set(TASKS):
        parser.error(f"unknown task {min(unknown)!r}; allowed: {', '.join(TASKS)}")
    block = MarkedBlock(options.write, "ray overhead") if options.write else None
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        workloads = [build_workload(name, Path(scratch, name), *TASKS[name]) for name in names]
        rows = [compare(workload, options.repeats) for workload in workloads]
        killed = kill_a_node(workloads[0], max(options.repeats // 3, 1))
    result = {
        **measurement_origin(),
        "ray": import_ray().__version__,
        "repeats": options.repeats,
        "tasks": rows,
        "killed": killed,
    }
    if options.out:
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")
    lines = format_table(result)
    if block:
        block.write(lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
