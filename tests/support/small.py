"""A small federated problem whose rounds take milliseconds. Worker processes can import it.

Clients are Gaussian clouds of different sizes. The model is a two-layer softmax classifier with dropout. The
functions at the end simulate failures: they sleep, kill their process or raise errors.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedopt import rng
from fedopt.algorithms import ALGORITHMS
from fedopt.data import Arrays, Federation, Split
from fedopt.engine import loop
from fedopt.engine.aggregate import RoundReport
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.loop import TrainingSetup
from fedopt.engine.problem import Problem
from fedopt.engine.sampling import uniform
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.resolve import resolve
from fedopt.runs.result import RunResult
from fedopt.tasks import Task
from fedopt.tasks.metrics import accuracy, cross_entropy

FEATURES, HIDDEN, CLASSES = 8, 16, 4
D = 8 * 16 + 16 + 16 * 4 + 4  # 212 parameters
Batch = tuple[Tensor, Tensor]


def sizes(clients: int) -> np.ndarray:
    """Return 5 to 35 examples per client; all sizes differ for up to 31 clients."""
    return np.array([5 + 11 * i % 31 for i in range(clients)], dtype=np.int64)


def cloud(salt: str, n: int, index: int) -> Arrays:
    """Return inputs, labels, and the number of the client for each example."""
    draw = rng.generator("small", salt, index)
    centres = rng.generator("small centres").normal(size=(CLASSES, FEATURES))
    labels = draw.integers(CLASSES, size=n)
    inputs = centres[labels] + draw.normal(size=(n, FEATURES)) + 0.3 * draw.normal(size=FEATURES)
    return inputs.astype(np.float32), labels, np.full(n, index)


def _train_client(clients: int, index: int) -> Arrays:
    return cloud("train", int(sizes(clients)[index]), index)


def _test_client(index: int) -> Arrays:
    return cloud("test", 40, index)


def federation(source: str, *, clients: int = 24) -> Federation:
    ids = [f"c{i:02d}" for i in range(clients)]
    train = Split(ids, sizes(clients), partial(_train_client, clients))
    return Federation(train, Split(["t0", "t1"], np.array([40, 40]), _test_client), "small")


def network(*, dropout: float = 0.5, hidden: int = HIDDEN, features: int = FEATURES) -> nn.Module:
    return nn.Sequential(
        nn.Linear(features, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, CLASSES)
    )


CLIP = 0.01


def clipped_network() -> nn.Module:
    """A network whose first weight has a gradient hook."""
    module = network(dropout=0.0)
    next(module.parameters()).register_hook(lambda gradient: gradient.clamp(-CLIP, CLIP))
    return module


def prepare(examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    return examples[0], examples[1]


SMALL = Task("small", "a test", federation, network, prepare, cross_entropy, {"accuracy": accuracy})
SETTINGS = {"rounds": 3, "clients_per_round": 6, "client.batch_size": 8, "checkpoint.every": 1}


def run(
    executor: Executor | None = None,
    algorithm: str = "fedavg",
    settings: Mapping[str, Any] | None = None,
    task: Task = SMALL,
    **options: Any,
) -> RunResult:
    """Execute a run, by default in this process."""
    config = resolve(task, algorithm, SETTINGS | dict(settings or {}))
    return execute(PreparedRun(config, build_problem(task, config)), executor or Serial(), **options)


def problem(settings: Mapping[str, Any] | None = None, algorithm: str = "fedavg") -> Problem:
    """Build the small problem with these settings."""
    return build_problem(SMALL, resolve(SMALL, algorithm, SETTINGS | dict(settings or {})))


def setup(
    executor: Executor | None = None,
    algorithm: str = "fedavg",
    settings: Mapping[str, Any] | None = None,
    task: Task = SMALL,
    cohort: int = 6,
) -> tuple[TrainingSetup, torch.Tensor]:
    """Return the setup for `run_round`, and x_0."""
    config = resolve(task, algorithm, SETTINGS | dict(settings or {}))
    built = build_problem(task, config)
    executor = executor or Serial()
    data = built.federation()
    executor.load(built, data, data.test.client(0))
    table = MemoryTable()
    training = TrainingSetup(built.algorithm(), executor, data.train, uniform, cohort, config.seed, table)
    return training, initial_vector(built)


def run_round(setup: TrainingSetup, state: Any, t: int, eta_l: float, eta: float) -> tuple[Any, RoundReport]:
    """Run round t of Algorithm 1."""
    return loop.drive(loop.run_round(setup, state, t, eta_l, eta), setup.executor)


# Every algorithm, and options that change the vectors that are sent.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ALGORITHMS if name != "centralized"},
    "lookahead average": ("lookahead", {"client.state": "average"}),
    "scaffold I": ("scaffold", {"client.option": "I"}),
    "adam and yogi": ("fedopt", {"client.optimizer": "adam", "server.optimizer": "yogi"}),
    "as run": ("fedadam", {"variant": "as_run", "sampling": "as_run", "weighting": "uniform"}),
    "centralized": ("centralized", {"clients_per_round": 1, "client.optimizer": "adam"}),
}


# Failures. The third array of a client's examples is its number.


def _owner(examples: tuple[Tensor, ...]) -> int:
    return int(examples[2][0])


def _note(path: str, text: object) -> None:
    """Append a line to a file that several processes write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def late(log: str, slowest: int, examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    """Sleep for a time that depends on process and client; one client takes much longer than the others."""
    owner = _owner(examples)
    if augment is not None:
        time.sleep(0.3 if owner == slowest else (os.getpid() * 7 + owner * 13) % 5 / 1000)
        _note(log, owner)
    return prepare(examples, augment)


def hung_once(
    mark: str, client: int, examples: tuple[Tensor, ...], augment: np.random.Generator | None
) -> Batch:
    """Record the process and hang when this client is trained for the first time."""
    if augment is not None and _owner(examples) == client and not Path(mark).exists():
        _note(mark, os.getpid())
        time.sleep(60)
    return prepare(examples, augment)


def deadly(client: int, examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    if augment is not None and _owner(examples) == client:
        os.kill(os.getpid(), signal.SIGKILL)
    return prepare(examples, augment)


def deadly_network(survivor: int) -> nn.Module:
    """Kill every process that builds the model, except one."""
    if os.getpid() != survivor:
        os.kill(os.getpid(), signal.SIGKILL)
    return network()


def dead_half_way(
    mark: str, client: int, examples: tuple[Tensor, ...], augment: np.random.Generator | None
) -> Batch:
    """Kill the process at the second batch of this client, the first time."""
    if augment is not None and _owner(examples) == client:
        _note(mark, os.getpid())
        if len(Path(mark).read_text().splitlines()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return prepare(examples, augment)


def overflowing_half_way(
    directory: str,
    clients: tuple[int, ...],
    examples: tuple[Tensor, ...],
    augment: np.random.Generator | None,
) -> Batch:
    """Return infinite inputs in all but the first batch of these clients, in each process."""
    inputs, targets = prepare(examples, augment)
    if augment is None or _owner(examples) not in clients:
        return inputs, targets
    mark = Path(directory, f"{os.getpid()}-{_owner(examples)}")
    seen = mark.exists()
    mark.touch()
    return (torch.full_like(inputs, float("inf")) if seen else inputs), targets


def tainted(
    clients: tuple[int, ...], examples: tuple[Tensor, ...], augment: np.random.Generator | None
) -> Batch:
    """Return NaN inputs in the training of these clients."""
    inputs, targets = prepare(examples, augment)
    bad = augment is not None and _owner(examples) in clients
    return (torch.full_like(inputs, float("nan")) if bad else inputs), targets


def one_threaded(examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    assert torch.get_num_threads() == 1, "more than one thread"
    assert augment is None or os.environ["OMP_NUM_THREADS"] == "1", "not set before torch was imported"
    return prepare(examples, augment)


def marked(client: int, examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    """Return targets of -1 for one client; `picky` rejects them."""
    inputs, targets = prepare(examples, augment)
    return inputs, (targets.fill_(-1) if augment is not None and _owner(examples) == client else targets)


def picky(outputs: Tensor, targets: Tensor) -> Tensor:
    if (targets < 0).any():
        raise ValueError("no such\nclass")
    return cross_entropy(outputs, targets)


def tiny(examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    """Return denormal inputs."""
    inputs, targets = prepare(examples, augment)
    return inputs * 1e-39, targets


class Amplifier(nn.Linear):
    """Reverses `tiny`, unless its numbers were flushed to zero."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input * 2.0**127)


def amplifier(*, bias: bool = False) -> nn.Module:
    return Amplifier(FEATURES, CLASSES, bias=bias)


def far_away(examples: tuple[Tensor, ...], augment: np.random.Generator | None) -> Batch:
    inputs, targets = prepare(examples, augment)
    return inputs, torch.full((len(targets), CLASSES), 1e20)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum(1)


def undecided(*, bias: bool = False) -> nn.Module:
    """A linear model that starts at zero."""
    layer = nn.Linear(FEATURES, CLASSES, bias=bias)
    nn.init.zeros_(layer.weight)
    return layer


def _sometimes_empty(clients: int, index: int) -> Arrays:
    arrays = _train_client(clients, index)
    return tuple(a[:0] for a in arrays) if index == 5 else arrays


def with_an_empty_client(source: str, *, clients: int = 24) -> Federation:
    made = federation(source, clients=clients)
    return made._replace(train=replace(made.train, examples=partial(_sometimes_empty, clients)))
