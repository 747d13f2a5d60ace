"""Numbers that the paper prints for several tasks, and the names and order in its tables.

Settings, grids, best rates and results of one task are in its `PaperSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedopt.tasks import TASKS, PaperSettings

__all__ = ["METHOD_NAMES"]  # for other packages

ADAPTIVE = ("fedadagrad", "fedadam", "fedyogi")
OPTIMIZERS = (*ADAPTIVE, "fedavgm", "fedavg")  # in the order of the paper's tables
SCAFFOLD = "scaffold"  # the paper shows its curves, but prints no results and no rates
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

HEAT_MAP_TAU = -3.0  # log10 of tau in the heat maps and the best server rates (captions)

# Bold as printed. Section 5, table of validation performance over the last 100 rounds:
PERFORMANCE_BOLD: Mapping[str, tuple[str, ...]] = {
    "cifar10": ("fedyogi",),
    "cifar100": ("fedadam", "fedyogi", "fedavgm"),
    "emnist_cr": ("fedadam", "fedyogi", "fedavgm"),
    "shakespeare": ("fedadagrad", "fedyogi", "fedavgm"),
    "so_nwp": ("fedadam", "fedyogi"),
    "so_lr": ("fedadagrad",),
    "emnist_ae": ("fedyogi",),
}
# Appendix, table of test set performance on Stack Overflow:
TEST_BOLD: Mapping[str, tuple[str, ...]] = {"so_nwp": ("fedadam", "fedyogi"), "so_lr": ("fedadagrad",)}
# Appendix, table of learning-rate decay, row ExpDecay. The row "constant" has no bold numbers:
EXP_DECAY_BOLD = ("fedadam", "fedyogi", "fedavgm")

# Appendix, table of learning-rate decay on EMNIST CR: test accuracy in percent. The row "constant" repeats
# the performance table.
DECAY_TASK = "emnist_cr"
CENTRALIZED = {"adagrad": 88.0, "adam": 87.9, "yogi": 88.0, "sgdm": 87.7, "sgd": 87.7}
CENTRALIZED_EPOCHS = 100
EXP_DECAY = {"fedadagrad": 85.3, "fedadam": 86.2, "fedyogi": 86.2, "fedavgm": 85.8, "fedavg": 85.2}
DECAY_ROUNDS = 500  # the client rate is multiplied by 0.1 after each interval


class DatasetSizes(NamedTuple):
    """One row of the dataset statistics (appendix on datasets and models)."""

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
DATASETS: Mapping[str, DatasetSizes] = {
    "cifar10": DatasetSizes(500, 50_000, 100, 10_000),
    "cifar100": DatasetSizes(500, 50_000, 100, 10_000),
    "emnist": DatasetSizes(3_400, 671_585, 3_400, 77_483),
    "shakespeare": DatasetSizes(715, 16_068, 715, 2_356),
    "stackoverflow": DatasetSizes(342_477, 135_818_730, 204_088, 16_586_035),
}
DATASET_BY_TASK = {
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "emnist_cr": "emnist",
    "emnist_ae": "emnist",
    "shakespeare": "shakespeare",
    "so_nwp": "stackoverflow",
    "so_lr": "stackoverflow",
}


def paper_settings(task: str) -> PaperSettings:
    """Return what the paper prints about a task."""
    paper = TASKS[task].paper
    assert paper is not None  # every registered task is from the paper
    return paper
