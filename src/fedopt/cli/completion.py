"""Shell completion of tasks and algorithms. The names are listed here, because importing torch is slow."""

from __future__ import annotations

TASK_NAMES = (
    "cifar10",
    "cifar100",
    "emnist_cr",
    "emnist_ae",
    "shakespeare",
    "so_nwp",
    "so_lr",
    "synthetic_lr",
    "synthetic_mlp",
)
ALGORITHM_NAMES = (
    "fedavg",
    "fedavgm",
    "fedadagrad",
    "fedadam",
    "fedyogi",
    "scaffold",
    "fedopt",
    "fedprox",
    "adaalter",
    "lookahead",
    "centralized",
)


def complete_task(incomplete: str) -> list[str]:
    return [name for name in TASK_NAMES if name.startswith(incomplete)]


def complete_algorithm(incomplete: str) -> list[str]:
    return [name for name in ALGORITHM_NAMES if name.startswith(incomplete)]


def complete_algorithms(incomplete: str) -> list[str]:
    """Complete the last name of a list such as `fedavg,fed`. Names that the list has are left out."""
    before, comma, last = incomplete.rpartition(",")
    used = before.split(",")
    return [f"{before}{comma}{name}" for name in complete_algorithm(last) if name not in used]
