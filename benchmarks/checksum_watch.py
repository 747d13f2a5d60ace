"""Record the final models of all algorithms on this machine: python benchmarks/checksum_watch.py

The file tests/recorded_checksums.json has one entry per version of torch and type of processor, because both
may change the rounding. A test compares the models of each later version of fedopt with the entry of its
machine. Run this program on a new type of processor, or after a change that alters results on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import fedopt
from fedopt.algorithms import ALGORITHMS
from fedopt.files import write_atomically
from fedopt.processor import processor_model

FILE = Path(__file__).parent.parent / "tests" / "recorded_checksums.json"
ROUNDS = 3
# A perceptron, and a network with convolutions, dropout and dense layers that update themselves.
TASKS: dict[str, dict[str, Any]] = {
    "synthetic_mlp": {"clients_per_round": 5, "client.steps": 3, "eval.sample": 20},
    "emnist_cr": {"data.clients": 6, "clients_per_round": 3, "client.steps": 2, "eval.sample": 20},
}
CASES = [f"{task} {algorithm}" for task in TASKS for algorithm in ALGORITHMS]


def machine_key() -> str:
    """Everything besides the code that decides how sums are rounded."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {processor_model()}"


def compute_checksum(case: str) -> str:
    """Train a case of `CASES` and return the checksum of its final model."""
    task, algorithm = case.split()
    settings = {"eval.every": 1000, **TASKS[task]}
    if algorithm == "centralized":
        settings["clients_per_round"] = 1
    result = fedopt.run(task, algorithm=algorithm, rounds=ROUNDS, seed=11, config=settings)
    return result.x_sha256


def read_recorded() -> dict[str, dict[str, str]]:
    recorded: dict[str, dict[str, str]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return recorded


def main() -> None:
    recorded = read_recorded()
    before = recorded.get(machine_key(), {})
    recorded[machine_key()] = {case: compute_checksum(case) for case in CASES}
    write_atomically(FILE, json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    changed = [case for case in CASES if before.get(case, "") != recorded[machine_key()][case]]
    print(f"{machine_key()}: {len(CASES)} checksums, {len(changed)} new or different")


if __name__ == "__main__":
    main()
