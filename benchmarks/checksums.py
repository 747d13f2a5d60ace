"""Checksums of the final model for every algorithm on every task: python benchmarks/checksums.py FILE

Writes {"TASK ALGORITHM [OPTIONS]": x_sha256} as JSON. Run it before and after a change that must not alter
results, and compare: python benchmarks/checksums.py after.json --against before.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import fedopt
from fedopt.algorithms import ALGORITHMS
from fedopt.tasks import TASKS

ROUNDS = 3
# Small enough for two cores. Every client takes several steps.
SMALL: dict[str, dict[str, Any]] = {
    "cifar10": {"clients_per_round": 2, "client.steps": 2, "client.batch_size": 4, "eval.sample": 20},
    "cifar100": {"clients_per_round": 2, "client.steps": 2, "client.batch_size": 4, "eval.sample": 20},
    "emnist_cr": {"data.clients": 20, "client.steps": 3, "eval.sample": 100},
    "emnist_ae": {"data.clients": 20, "client.steps": 3, "eval.sample": 100},
    "shakespeare": {"data.clients": 20, "client.steps": 2, "eval.sample": 100},
    "so_nwp": {"data.clients": 20, "clients_per_round": 4, "client.steps": 2, "eval.sample": 100},
    "so_lr": {"eval.sample": 200},
}
# Options that change the path which a round takes through the engine.
OPTIONS: list[dict[str, Any]] = [
    {"variant": "as_run"},
    {"client.drop_last": True},
    {"weighting": "uniform"},
]


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    selected: list[tuple[str, str, dict[str, Any]]] = [(t, a, {}) for t in TASKS for a in ALGORITHMS]
    for options in OPTIONS:
        selected += [
            (t, a, options) for t in ("emnist_cr", "so_lr") for a in ("fedavg", "fedyogi", "scaffold")
        ]
    whole_epochs = {"client.steps": None, "client.epochs": 2}
    selected += [(t, "fedavg", whole_epochs) for t in ("emnist_cr", "emnist_ae", "shakespeare")]
    return selected


def checksum(task: str, algorithm: str, options: dict[str, Any], executor: str) -> str:
    settings = {**SMALL.get(task, {}), **options}
    if algorithm == "centralized":
        settings.pop("clients_per_round", None)
        if task == "so_lr":  # the union of all 342,477 clients would take minutes to generate
            settings |= {"data.clients": 50, "client.steps": 5}
    settings = {key: value for key, value in settings.items() if value is not None}
    result = fedopt.run(task, algorithm=algorithm, rounds=ROUNDS, seed=7, config=settings, executor=executor)
    return result.x_sha256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="results; an existing file is completed")
    parser.add_argument("--against", type=Path, help="a file written earlier; exit code 1 if a value differs")
    parser.add_argument("--executor", default="serial")
    parser.add_argument("--task", action="append", choices=list(TASKS), help="only this task")
    arguments = parser.parse_args()

    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    checksums: dict[str, str] = json.loads(arguments.file.read_text()) if arguments.file.exists() else {}
    different = 0
    for task, algorithm, options in cases():
        if arguments.task and task not in arguments.task:
            continue
        name = " ".join([task, algorithm, *(f"{key}={value}" for key, value in options.items())])
        if name not in checksums:
            checksums[name] = checksum(task, algorithm, options, arguments.executor)
        verdict = "" if name not in before else "same" if before[name] == checksums[name] else "DIFFERENT"
        different += verdict == "DIFFERENT"
        print(f"{name:60} {checksums[name][:16]} {verdict}", flush=True)
        arguments.file.write_text(json.dumps(checksums, indent=1) + "\n")
    if before:
        print(f"{len(checksums)} checksums, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
