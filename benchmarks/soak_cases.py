"""The commands that `soak.py` disturbs, and what must not change.

Each case runs one real command of `fedopt` on a tiny task and describes its result. A result is equal for
every execution, whatever happened on the way.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedopt
import fedopt.api  # commands import these modules when they start; here they are imported before the fork
import fedopt.cli.printing
import fedopt.data.importing
from fedopt.cli import main

ROUNDS = 30
SETTINGS = {"clients_per_round": 4, "client.steps": 2, "eval.every": 3, "eval.sample": 50}
Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A command, and the part of its output that must be the same after kills and faults."""

    name: str
    run: Callable[[Path], None]  # in a process of its own, with the output directory
    result: Callable[[Path], Result]
    has_workers: bool = False


def command(*words: object) -> None:
    sys.argv = ["fedopt", *map(str, words)]
    main()


def _settings(**more: Any) -> list[str]:
    settings = SETTINGS | {key.replace("__", "."): value for key, value in more.items()}
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def train(algorithm: str, every: int, rounds: int = ROUNDS) -> Callable[[Path], None]:
    options = ("--algorithm", algorithm, "--rounds", rounds, "--executor", "serial")
    return lambda out: command(
        "run", "synthetic_lr", *options, *_settings(checkpoint__every=every), "--out", out / "run"
    )


def _run_with_workers(out: Path) -> None:
    """Without running workers, the command would not use them for so small a run."""
    words = ("--algorithm", "scaffold", "--rounds", ROUNDS)
    with fedopt.workers(2):
        command("run", "synthetic_lr", *words, *_settings(checkpoint__every=2), "--out", out / "run")


def _sweep(out: Path) -> None:
    grid = "client_lr=-2:-1:1"
    words = ("--algorithm", "fedavg", "--grid", grid, "--rounds", ROUNDS, "--workers", 2, "--keep", "all")
    command("sweep", "synthetic_lr", *words, *_settings(checkpoint__every=2), "--out", out / "sweep")


def import_table(out: Path) -> None:
    table = out.parent / "table.csv"  # the directory with the faults holds only what is tested
    if not table.exists():
        with open(table.with_suffix(".part"), "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["client", "label", "a", "b"])
            writer.writerows([f"c{i % 40}", i % 3, i / 7, -i] for i in range(20_000))
        table.with_suffix(".part").rename(table)
    columns = ("--client-column", "client", "--label-column", "label")
    command("data", "import", "own", table, *columns, "--to", out / "store")


def run_result(out: Path) -> Result:
    """The final model, every metric of every round, and files that should not remain."""
    results: Result = {}
    for info_file in sorted(out.rglob("run.json")):
        run = info_file.parent
        info = json.loads(info_file.read_text())
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        metrics = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
        results[run.name] = {
            "status": info["status"],
            "x_sha256": info.get("x_sha256"),
            "rounds": [line["round"] for line in metrics if line["split"] == "train"],
            "metrics": metrics,
        }
    return results | {"temporary files": _temporary_files(out)}


def _store_result(out: Path) -> Result:
    """The bytes of all columns of the store."""
    files = sorted(path for path in (out / "store").rglob("*.npy") if path.is_file())
    checksums = {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {"files": checksums, "temporary files": _temporary_files(out)}


def _temporary_files(out: Path) -> list[str]:
    return sorted(path.name for path in out.rglob(".*") if path.name not in (".lock", ".filler"))


RUNS = [
    Case(f"run {name}", train(name, every), run_result) for name, every in (("fedyogi", 2), ("scaffold", 1))
]
WORKERS = Case("run with workers", _run_with_workers, run_result, has_workers=True)
SWEEP = Case("sweep", _sweep, run_result, has_workers=True)
IMPORT = Case("import", import_table, _store_result)
# Short cases more often: a sweep and workers have to import torch in new processes.
CASES = [*RUNS, IMPORT, *RUNS, WORKERS, *RUNS, IMPORT, SWEEP]
