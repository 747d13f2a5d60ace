"""Time saved by faster ways to the same result: both run alternately, in one process with one thread.

    python benchmarks/fast_paths.py [--repeats 9] [--write docs/performance.md]

The table has the medians of both and their ratio. `tests/engine/test_fast_paths.py` compares the results.
`--write` puts the table between the markers of a document.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from speed.origin import MarkedBlock, describe_origin, measurement_origin
from speed.workload import build_workload
from torch import Tensor, nn

from fedopt.algorithms import Algorithm, ClientResult, Vector, Work, fedopt, scaffold, sgd
from fedopt.algorithms.base import Round
from fedopt.engine.allocation import ENVIRONMENT
from fedopt.engine.worker import ClientJob, Worker
from fedopt.models.emnist import CharacterCNN
from fedopt.tasks import TASKS

STEPS = 5  # of a client
Timed = Callable[[], object]


class Comparison(NamedTuple):
    what: str
    where: str
    plain: float  # seconds
    fast: float
    ratio: float  # median over pairs


def compare(what: str, where: str, plain: Timed, fast: Timed, repeats: int) -> Comparison:
    times: tuple[list[float], list[float]] = ([], [])
    for function in (plain, fast):
        function()
    for _ in range(repeats):
        for function, seconds in zip((plain, fast), times, strict=True):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
    ratio = median(a / b for a, b in zip(*times, strict=True))
    result = Comparison(what, where, median(times[0]), median(times[1]), ratio)
    print(
        f"{what}, {where}: {result.plain:.4g} s, {result.fast:.4g} s, {ratio:.2f}",
        file=sys.stderr,
        flush=True,
    )
    return result


def plain_sgd(work: Work, x: Vector) -> ClientResult:
    """Algorithm 1's client with SGD, without steps in place."""
    x_i = x
    for b in work.batches():
        x_i = x_i - work.round.eta_l * work.gradient(x_i, b)
    return ClientResult((x_i - x,))


plain_sgd.sparse = True  # type: ignore[attr-defined]


def plain_scaffold(work: Work, x: Vector, c: Vector) -> ClientResult:
    """SCAFFOLD's client, without steps in place."""
    (c_i,) = work.kept_or(c)
    eta_l, x_i = work.round.eta_l, x
    for b in work.batches():
        x_i = x_i - eta_l * (work.gradient(x_i, b) + (c - c_i))
    c_plus = c_i - c + (x - x_i) / (work.steps * eta_l)
    return ClientResult((x_i - x, c_plus - c_i), keeps=(c_plus,))


def with_client(algorithm: Callable[[], Algorithm], client: Callable[..., ClientResult]) -> Algorithm:
    return algorithm()._replace(client=client)


def train_clients(
    task: str,
    clients: int | None = 1,
    algorithm: Callable[[], Algorithm] | None = None,
    plain: Callable[..., ClientResult] | None = None,
    **changes: Any,
) -> Timed:
    """Train clients of `task` for a few steps, with FedAvg by default. `plain` replaces the client."""
    workload = build_workload(task, Path(tempfile.mkdtemp(dir=_SCRATCH.name)), clients, STEPS)
    algorithm = algorithm or partial(fedopt, sgd(), sgd())
    algorithm = algorithm if plain is None else partial(with_client, algorithm, plain)
    problem = replace(workload.problem, algorithm=algorithm, **changes)
    worker = Worker(problem, problem.federation(), ())
    round = Round(0, workload.client_lr, 1.0, 1, 1)
    made = problem.algorithm()
    sent = made.sent(made.init(workload.x))

    def train() -> None:
        for client in range(len(workload.examples)):
            worker.run(ClientJob(round, client), sent, None)

    return train


class _TorchDropout(CharacterCNN):
    def __init__(self) -> None:
        super().__init__()
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)  # type: ignore[assignment]


class _PlainCNN(_TorchDropout):
    """The network with channels first, torch's dropout, and ReLU before pooling."""

    def forward(self, pixels: Tensor) -> Tensor:
        h = F.relu(self.conv1(pixels.unsqueeze(1)))
        h = self.pool(F.relu(self.conv2(h)))
        h = F.relu(self.dense1(self.dropout1(h).flatten(1)))
        logits: Tensor = self.dense2(self.dropout2(h))
        return logits


def network_step(model: nn.Module) -> Timed:
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


def compare_allocation(repeats: int) -> Comparison:
    """Add two vectors of the size of ResNet-18, in new processes with and without the settings of workers."""
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for seconds, settings in zip(times, ({}, ENVIRONMENT), strict=True):
            command = [sys.executable, "-c", _VECTORS]
            environment = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT} | settings
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            seconds.append(float(done.stdout))
    ratio = median(a / b for a, b in zip(*times, strict=True))
    return Comparison(
        "freed vectors stay with the process", "sum of 11 M numbers", *map(median, times), ratio
    )


def measure(repeats: int) -> list[Comparison]:
    results = [
        compare("steps in place", task, train_clients(task, plain=plain_sgd), train_clients(task), repeats)
        for task in TASKS
    ]
    for task in ("emnist_ae", "so_lr"):
        plain = train_clients(task, algorithm=scaffold, plain=plain_scaffold)
        fast = train_clients(task, algorithm=scaffold)
        results.append(compare("steps of SCAFFOLD in place", task, plain, fast, repeats))
    cohort = train_clients("so_lr", clients=None)
    dense = train_clients("so_lr", clients=None, touched=None)
    results.append(compare("only touched rows", "cohort of so_lr", dense, cohort, 3 * repeats))
    step = network_step(CharacterCNN())
    plain = network_step(_TorchDropout())
    results.append(compare("dropout from bytes", "step of the CNN", plain, step, repeats))
    what = "dropout from bytes, channels last, ReLU after pooling"
    results.append(compare(what, "step of the CNN", network_step(_PlainCNN()), step, repeats))
    return [*results, compare_allocation(min(repeats, 3))]


def table(results: list[Comparison]) -> list[str]:
    return [
        f"{describe_origin(measurement_origin())}, one thread; `python benchmarks/fast_paths.py`. Clients "
        f"and networks take up to {STEPS} steps.",
        "",
        "| fast path | measured on | plain | fast | ratio |",
        "|---|---|---:|---:|---:|",
        *(
            f"| {s.what} | {s.where} | {s.plain * 1e3:.3g} ms | {s.fast * 1e3:.3g} ms | {s.ratio:.2f} |"
            for s in results
        ),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write the table into this document")
    arguments = parser.parse_args()
    block = MarkedBlock(arguments.write, "fast paths") if arguments.write else None
    torch.set_num_threads(1)
    lines = table(measure(arguments.repeats))
    print("\n".join(lines))
    if block:
        block.write(lines)


_SCRATCH = tempfile.TemporaryDirectory()

if __name__ == "__main__":
    # Measure with the environment of workers, which is read when a process starts.
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    main()
