"""Measure the cost of data: opening a federation, and preparing batches compared with training.

    python benchmarks/data_cost.py [TASK ...] [--clients 5] [--data DIR]

Opening and reading 50 clients is measured in a new process, without imports. The last column is the time to
read a client and prepare its batches divided by the time to train on it, as the median over clients. Both are
single-threaded.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from rich.console import Console
from rich.table import Table

from fedopt.algorithms import Round
from fedopt.engine.client import ClientWork
from fedopt.engine.sampling import uniform
from fedopt.engine.torch_state import single_thread
from fedopt.engine.worker import ClientJob, Worker
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

OPENING = """
import json, resource, sys, time
from fedopt.engine.sampling import uniform
from fedopt.tasks import TASKS
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
split = TASKS[sys.argv[1]].federation(sys.argv[2]).train
for client in uniform(0, 0, len(split.ids), min(50, len(split.ids))):
    split.client(client)
seconds = time.perf_counter() - start
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"clients": len(split.ids), "seconds": seconds, "megabytes": grown / 1024}))
"""


def measure_opening(task: str, data: str) -> dict[str, float]:
    """Open the federation and read 50 clients in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", OPENING, task, data], capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure_ratios(task: str, data: str, clients: int) -> list[float]:
    """Return the ratio of preparation time to training time for several clients."""
    config = resolve(TASKS[task], "fedavg", {}, data)
    problem = build_problem(TASKS[task], config)
    worker = Worker(problem, problem.federation(), ())
    split = worker.federation.train
    x = worker.flat.read()
    ratios = []
    with single_thread():
        for t in range(clients):
            (index,) = uniform(0, t, len(split.ids), 1)
            round = Round(t, config.client.lr, config.server.lr, 1, len(split.ids))
            start = time.perf_counter()
            arrays = split.client(index)
            work = ClientWork(problem, worker.flat, arrays, split.ids[index], round, None)
            for batch in work.batches():
                del batch
            prepared = time.perf_counter() - start
            start = time.perf_counter()
            worker.run(ClientJob(round, index), (x,), None)
            whole = time.perf_counter() - start
            ratios.append(prepared / max(whole - prepared, 1e-9))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--data", default="synthetic")
    arguments = parser.parse_args()
    table = Table(title=f"Cost of data, {arguments.data} (torch {torch.__version__})")
    for name in ("task", "clients", "open + 50 clients", "memory", "preparing / training"):
        table.add_column(name, justify="left" if name == "task" else "right")
    for task in arguments.tasks:
        opened = measure_opening(task, arguments.data)
        share = statistics.median(measure_ratios(task, arguments.data, arguments.clients))
        table.add_row(
            task,
            f"{opened['clients']:,.0f}",
            f"{opened['seconds']:.2f} s",
            f"{opened['megabytes']:.0f} MB",
            f"{share:.1%}",
        )
    Console().print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process {peak:.0f} MB")


if __name__ == "__main__":
    main()
