"""What each fast path saves: the plain way and the fast way in turns, in one process of one thread.

    python benchmarks/fast_paths.py [--repeats 9] [--write docs/performance.md]

Printed are medians of both and their ratio. That both ways give the same numbers is tested elsewhere
(`tests/test_descent.py`, `test_parts.py`); here only time counts. `--write` puts the table between the
markers of a document.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedopt.algorithms.base import Algorithm, LocalSGD, Round, Still
from fedopt.bench.engine_rounds import EngineRounds
from fedopt.bench.environment import current_commit, describe_machine
from fedopt.bench.marked_block import MarkedBlock
from fedopt.bench.workload import build_workload
from fedopt.engine import client as local
from fedopt.engine.allocation import ENVIRONMENT
from fedopt.engine.executors import load_balancing as schedule
from fedopt.engine.worker import ClientJob, Worker
from fedopt.models.dense import DenseStack
from fedopt.models.emnist import CharacterCNN
from fedopt.models.linear import TagRegression
from fedopt.tasks import TASKS

STEPS = 5  # of the client that is trained
Way = Callable[[], object]


class Saved(NamedTuple):
    what: str
    where: str
    plain: float  # seconds
    fast: float
    ratio: float  # the median over pairs


def compare(what: str, where: str, plain: Way, fast: Way, repeats: int) -> Saved:
    times: tuple[list[float], list[float]] = ([], [])
    for way in (plain, fast):
        way()
    for _ in range(repeats):
        for way, seconds in zip((plain, fast), times, strict=True):
            start = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - start)
    ratio = median(a / b for a, b in zip(*times, strict=True))
    saved = Saved(what, where, median(times[0]), median(times[1]), ratio)
    print(
        f"{what}, {where}: {saved.plain:.4g} s, {saved.fast:.4g} s, {ratio:.2f}", file=sys.stderr, flush=True
    )
    return saved


def trained(task: str, as_written: bool = False, whole: bool = False, clients: int | None = 1) -> Way:
    """Clients of `task` for a few steps; their algorithm as it is written, or on the whole model."""
    work = build_workload(task, Path(tempfile.mkdtemp(dir=_SCRATCH.name)), clients, STEPS)
    problem = replace(work.problem, touched=None) if whole else work.problem
    runner = Worker(problem, problem.federation(), ())
    if as_written:
        client = runner.algorithm.client
        assert isinstance(client, LocalSGD)
        runner.client = client.function
    jobs = [ClientJob(Round(0, work.client_lr, 1.0, 1, 1), client) for client in range(len(work.examples))]
    return lambda: [runner.run(job, (work.x,), None) for job in jobs]


def changed(way: Way, owner: Any, name: str, value: object) -> Way:
    """The same with an attribute of a class or module set meanwhile."""

    def run() -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        try:
            way()
        finally:
            setattr(owner, name, before)

    return run


def whole_server(build: Callable[[], Algorithm]) -> Algorithm:
    """The same algorithm, whose server is given whole vectors."""
    algorithm = build()
    assert isinstance(algorithm.server, Still)
    return algorithm._replace(server=algorithm.server.function)


def on_workers(task: str, opened: ExitStack, server_on_all: bool = False) -> Way:
    """A round of `task` on two workers."""
    work = build_workload(task, Path(tempfile.mkdtemp(dir=_SCRATCH.name)), None, None)
    if server_on_all:
        problem = replace(work.problem, algorithm=partial(whole_server, work.problem.algorithm))
        work = replace(work, problem=problem)
    ours = EngineRounds(work, 2)
    opened.callback(ours.close)
    return ours.run_round


class _TorchDropout(CharacterCNN):
    def __init__(self) -> None:
        super().__init__()
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)  # type: ignore[assignment]


class _PlainCNN(_TorchDropout):
    """The same network as most would write it: channels first, torch's dropout, ReLU before the maximum."""

    def forward(self, pixels: Tensor) -> Tensor:
        h = F.relu(self.conv1(pixels.unsqueeze(1)))
        h = self.pool(F.relu(self.conv2(h)))
        h = F.relu(self.dense1(self.dropout1(h).flatten(1)))
        logits: Tensor = self.dense2(self.dropout2(h))
        return logits


def network_step(model: nn.Module) -> Way:
    parameters = list(model.parameters())
    pixels, labels = torch.rand(20, 28, 28), torch.arange(20)

    def step() -> None:
        for _ in range(STEPS):
            torch.autograd.grad(F.cross_entropy(model(pixels), labels), parameters)

    return step


_VECTORS = """
import time, torch
torch.set_num_threads(1)
x = torch.rand(11_227_812)
x + x
start = time.perf_counter()
for _ in range(20):
    x + x
print((time.perf_counter() - start) / 20)
"""


def allocation(repeats: int) -> Saved:
    """A sum of two vectors as long as a ResNet-18, in fresh processes with and without our settings."""
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for seconds, settings in zip(times, ({}, ENVIRONMENT), strict=True):
            words = [sys.executable, "-c", _VECTORS]
            environment = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT} | settings
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
            seconds.append(float(done.stdout))
    ratio = median(a / b for a, b in zip(*times, strict=True))
    return Saved("freed vectors stay with the process", "sum of 11 M numbers", *map(median, times), ratio)


def measure(repeats: int) -> list[Saved]:
    found = [
        compare("client SGD in place", task, trained(task, as_written=True), trained(task), repeats)
        for task in TASKS
    ]
    cohort = trained("so_lr", clients=None)
    whole = trained("so_lr", whole=True, clients=None)
    found.append(compare("touched rows alone", "cohort of so_lr", whole, cohort, 3 * repeats))
    apart = changed(cohort, TagRegression, "descends", False)
    found.append(compare("rows move in the backward pass", "cohort of so_lr", apart, cohort, 3 * repeats))
    apart = changed(trained("emnist_ae"), DenseStack, "descends", False)
    found.append(compare("eight layers as one node", "emnist_ae", apart, trained("emnist_ae"), 3 * repeats))
    singly = changed(trained("emnist_ae"), local, "_AHEAD", 1)
    found.append(compare("batches ahead", "emnist_ae", singly, trained("emnist_ae"), 3 * repeats))
    with ExitStack() as opened:
        plain, fast = (on_workers("so_lr", opened, server_on_all=way) for way in (True, False))
        found.append(compare("server on touched rows", "round of so_lr", plain, fast, 5 * repeats))
    with ExitStack() as opened:
        fast = on_workers("emnist_ae", opened)
        found.append(
            compare(
                "clients spread evenly",
                "round of emnist_ae",
                changed(fast, schedule, "_EVEN", float("inf")),
                fast,
                3 * repeats,
            )
        )
    ours = network_step(CharacterCNN())
    found.append(
        compare("dropout from bytes", "step of the CNN", network_step(_TorchDropout()), ours, repeats)
    )
    found.append(
        compare(
            "that, channels last, ReLU after pooling",
            "step of the CNN",
            network_step(_PlainCNN()),
            ours,
            repeats,
        )
    )
    return [*found, allocation(min(repeats, 3))]


def table(found: list[Saved]) -> list[str]:
    where = describe_machine()
    return [
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, commit {current_commit() or 'unknown'}, "
        f"{where['cpu']}, torch {where['torch']}, one thread; `python benchmarks/fast_paths.py`. A client "
        f"takes {STEPS} steps (a cohort's at most), the network {STEPS} as well; rounds are the paper's, on "
        "two workers.",
        "",
        "| what | where | plain | fast | ratio |",
        "|---|---|---:|---:|---:|",
        *(
            f"| {s.what} | {s.where} | {s.plain * 1e3:.3g} ms | {s.fast * 1e3:.3g} ms | {s.ratio:.2f} |"
            for s in found
        ),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="put the table there")
    asked = parser.parse_args()
    block = MarkedBlock(asked.write, "fast paths") if asked.write else None
    torch.set_num_threads(1)
    lines = table(measure(asked.repeats))
    print("\n".join(lines))
    if block:
        block.write(lines)


_SCRATCH = tempfile.TemporaryDirectory()

if __name__ == "__main__":
    # The process measures as a worker would: with its settings, which are read when it starts.
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    main()
