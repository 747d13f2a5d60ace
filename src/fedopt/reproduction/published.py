"""What the paper prints that belongs to no single task, and the names and order of its tables.

Settings, grids, best rates and results of a task are in its `PaperSettings`, which says where they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedopt.tasks import TASKS
from fedopt.tasks.base import PaperSettings

ADAPTIVE = ("fedadagrad", "fedadam", "fedyogi")
OPTIMIZERS = (*ADAPTIVE, "fedavgm", "fedavg")  # in the order of its tables
SCAFFOLD = "scaffold"  # has curves in the paper, but neither a column of results nor printed rates
METHODS = (*OPTIMIZERS, SCAFFOLD)
CURVE_ONLY = "curve only"

METHOD_NAMES = {
    "fedadagrad": "FedAdagrad",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedavgm": "FedAvgM",
    "fedavg": "FedAvg",
    "scaffold": "SCAFFOLD",
}
TASK_NAMES = {  # in the order of the performance table
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "emnist_cr": "EMNIST CR",
    "shakespeare": "Shakespeare",
    "so_nwp": "SO NWP",
    "so_lr": "SO LR",
    "emnist_ae": "EMNIST AE",
}

HEAT_MAP_TAU = -3.0  # log10: tau of the heat maps and of the best server rates (their captions)

# Bold as printed. Section 5, the table of validation performance over the last 100 rounds:
PERFORMANCE_BOLD: Mapping[str, tuple[str, ...]] = {
    "cifar10": ("fedyogi",),
    "cifar100": ("fedadam", "fedyogi", "fedavgm"),
    "emnist_cr": ("fedadam", "fedyogi", "fedavgm"),
    "shakespeare": ("fedadagrad", "fedyogi", "fedavgm"),
    "so_nwp": ("fedadam", "fedyogi"),
    "so_lr": ("fedadagrad",),
    "emnist_ae": ("fedyogi",),
}
# Appendix, the table of test set performance for Stack Overflow:
TEST_BOLD: Mapping[str, tuple[str, ...]] = {"so_nwp": ("fedadam", "fedyogi"), "so_lr": ("fedadagrad",)}
# Appendix, the table of learning-rate decay, row ExpDecay; its row "constant" has none:
EXP_DECAY_BOLD = ("fedadam", "fedyogi", "fedavgm")

# Appendix, the table of learning-rate decay, EMNIST CR: test accuracy in per cent. Its row "constant" repeats
# the performance table.
DECAY_TASK = "emnist_cr"
CENTRALIZED = {"adagrad": 88.0, "adam": 87.9, "yogi": 88.0, "sgdm": 87.7, "sgd": 87.7}
CENTRALIZED_EPOCHS = 100
EXP_DECAY = {"fedadagrad": 85.3, "fedadam": 86.2, "fedyogi": 86.2, "fedavgm": 85.8, "fedavg": 85.2}
DECAY_ROUNDS = 500  # the client rate is multiplied by 0.1 every so many


class Statistics(NamedTuple):
    """A row of the table of dataset statistics, in the appendix on datasets and models."""

    train_clients: int
    train_examples: int
    test_clients: int
    test_examples: int


DATASET_NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "emnist": "EMNIST-62",
    "shakespeare": "Shakespeare",
    "stackoverflow": "StackOverflow",
}
DATASETS: Mapping[str, Statistics] = {
    "cifar10": Statistics(500, 50_000, 100, 10_000),
    "cifar100": Statistics(500, 50_000, 100, 10_000),
    "emnist": Statistics(3_400, 671_585, 3_400, 77_483),
    "shakespeare": Statistics(715, 16_068, 715, 2_356),
    "stackoverflow": Statistics(342_477, 135_818_730, 204_088, 16_586_035),
}
DATASET_OF = {
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "emnist_cr": "emnist",
    "emnist_ae": "emnist",
    "shakespeare": "shakespeare",
    "so_nwp": "stackoverflow",
    "so_lr": "stackoverflow",
}


def settings(task: str) -> PaperSettings:
    """What the paper prints about one of its tasks."""
    paper = TASKS[task].paper
    assert paper is not None  # every task of the registry is the paper's
    return paper
