"""The settings of the tasks, against tables typed from the paper."""

from __future__ import annotations

import pytest

from fedopt.tasks.base import LogRange, Task
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP

TASKS = (CIFAR10, CIFAR100, EMNIST_AE, EMNIST_CR, SHAKESPEARE, SO_LR, SO_NWP)
EACH = pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])


# The tables of learning rates (client and server for each method), of tau and of performance, typed from the
# paper row by row.
METHODS = ("fedadagrad", "fedadam", "fedyogi", "fedavgm", "fedavg")
RATES = r"""
cifar10      -\thlf & -1 & -\thlf & -2 & -\thlf & -2 & -\thlf & -\hlf & -\hlf & 0
cifar100     -1 & -1 & -\thlf & 0 & -\thlf & 0 & -\thlf & 0 & -1 & \hlf
emnist_ae    \thlf & -\thlf & 1 & -\thlf & 1 & -\thlf & \hlf & 0 & 1 & 0
emnist_cr    -\thlf & -1 & -\thlf & -\fhlf & -\thlf & -\fhlf & -\thlf & -\hlf & -1 & 0
shakespeare  0 & -\hlf & 0 & -2 & 0 & -2 & 0 & -\hlf & 0 & 0
so_lr        2 & 1 & 2 & -\hlf & 2 & -\hlf & 2 & 0 & 2 & 0
so_nwp       -\hlf & -\thlf & -\hlf & -2 & -\hlf & -2 & -\hlf & 0 & -\hlf & 0
"""
TAUS = """
cifar10      -2 & -3 & -3
cifar100     -2 & -1 & -1
emnist_ae    -3 & -3 & -3
emnist_cr    -2 & -4 & -4
shakespeare  -1 & -3 & -3
so_lr        -2 & -5 & -5
so_nwp       -4 & -5 & -5
"""
PERFORMANCE = """
cifar10      72.1 & 77.4 & 78.0 & 77.4 & 72.8
cifar100     47.9 & 52.5 & 52.4 & 52.4 & 44.7
emnist_cr    85.1 & 85.6 & 85.5 & 85.2 & 84.9
shakespeare  57.5 & 57.0 & 57.2 & 57.3 & 56.9
so_nwp       23.8 & 25.2 & 25.2 & 23.8 & 19.5
so_lr        67.1 & 65.8 & 65.9 & 36.9 & 30.0
emnist_ae    4.20 & 1.01 & 0.98 & 1.65 & 6.47
"""
# batch size, rounds, clients a round, client grid, server grid
SETTINGS = {
    "cifar10": (20, 4000, 10, (-3, 0.5), (-3, 1)),
    "cifar100": (20, 4000, 10, (-3, 0.5), (-3, 1)),
    "emnist_ae": (20, 3000, 10, (-1.5, 2), (-2, 1)),
    "emnist_cr": (20, 1500, 10, (-3, 0.5), (-3, 1)),
    "shakespeare": (4, 1500, 10, (-3, 0.5), (-3, 1)),
    "so_lr": (100, 1500, 10, (-1, 3), (-2, 1.5)),
    "so_nwp": (16, 1500, 50, (-3, 0.5), (-3, 1)),
}
HALVES = {r"\fhlf": "2.5", r"\thlf": "1.5", r"\hlf": "0.5"}


def parse_table(table: str) -> dict[str, list[float]]:
    for name, value in HALVES.items():
        table = table.replace(name, value)
    rows = (line.split(maxsplit=1) for line in table.strip().splitlines())
    return {name: [float(cell) for cell in cells.split("&")] for name, cells in rows}


@EACH
def test_settings_match_the_paper(task: Task) -> None:
    paper = task.paper
    assert paper is not None
    batch, rounds, clients, client_grid, server_grid = SETTINGS[task.name]
    assert (paper.batch_size, paper.rounds, paper.clients_per_round) == (batch, rounds, clients)
    assert paper.client_grid == LogRange(*client_grid, 0.5)
    assert paper.server_grid == LogRange(*server_grid, 0.5)
    assert paper.tau_grid == LogRange(-5, -1, 1)
    rates, taus = parse_table(RATES)[task.name], [*parse_table(TAUS)[task.name], None, None]
    pairs = zip(rates[::2], rates[1::2], taus, strict=True)
    assert dict(zip(METHODS, pairs, strict=True)) == {m: tuple(paper.rates[m]) for m in METHODS}
    assert dict(zip(METHODS, parse_table(PERFORMANCE)[task.name], strict=True)) == paper.results


def test_metrics_and_reductions_match_the_paper() -> None:
    main = {task.name: (task.metric, task.better, task.reduction) for task in TASKS}
    accuracy = ("accuracy", "higher", "mean")
    assert main == {
        **{name: accuracy for name in ("cifar10", "cifar100", "emnist_cr", "shakespeare", "so_nwp")},
        "emnist_ae": ("mse", "lower", "sum"),
        "so_lr": ("recall_at_5", "higher", "sum"),
    }
    assert SO_LR.eval_sample == SO_NWP.eval_sample == 10_000  # "10,000 randomly sampled test examples"
    assert SHAKESPEARE.eval_sample == CIFAR10.eval_sample == CIFAR100.eval_sample == 0  # the whole test set
