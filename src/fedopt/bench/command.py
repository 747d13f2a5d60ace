"""`fedopt bench`: what was asked for, all tasks one after the other, and the result as a table."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import fedopt
from fedopt.bench.measure import Asked, Say, measure
from fedopt.bench.peers import PEERS, Absent, find, parse_peers, peers_directory
from fedopt.engine.executors import available_cores
from fedopt.errors import UserError, unknown
from fedopt.tasks import TASKS


def bench(
    tasks: list[str],
    against: str | None,
    repeats: int,
    workers: int | None,
    clients: int | None,
    steps: int | None,
    seconds: float,
    say: Say,
) -> dict[str, Any]:
    """Measure the tasks (all by default) and return what `--json` prints."""
    for name in tasks:
        if name not in TASKS:
            raise unknown("task", name, TASKS)
    for option, value in (("repeats", repeats), ("workers", workers), ("clients", clients), ("steps", steps)):
        if value is not None and value < 1:
            raise UserError(f"--{option} must be 1 or more, got {value}")
    names, directory = parse_peers(against), peers_directory()
    absent = {}
    for name in list(names):
        try:
            find(name, directory)
        except Absent as reason:
            absent[name] = str(reason)
            names.remove(name)
            say(f"{name}: absent: {reason}")
    asked = Asked(names, directory, repeats, workers or available_cores(), clients, steps, seconds)
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": commit(),
        "machine": machine(),
        "workers": asked.workers,
        "tasks": {},
    }
    for name in dict.fromkeys(tasks or TASKS):
        numbers = measure(name, asked, say)
        numbers["absent"] = absent | numbers["absent"]
        result["tasks"][name] = numbers
    return result


def commit() -> str | None:
    """The commit of the source that runs, with a mark if it was changed since."""
    here = Path(fedopt.__file__).resolve().parent
    try:
        found = [
            subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=20)
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", str(here)])
        ]
    except (OSError, subprocess.TimeoutExpired):
        return None
    if any(done.returncode for done in found):
        return None
    return found[0].stdout.strip() + (" with changes" if found[1].stdout.strip() else "")


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "cpu": model,
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


_COLUMNS = (
    "task",
    "round",
    "rounds/s",
    "steps/s",
    "GEMM share",
    "engine's own",
    "memory",
)


def rows(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The table's head and its rows, as words."""
    shown = [p for p in PEERS if any(p in numbers["ratio"] for numbers in result["tasks"].values())]
    head = [*_COLUMNS, *(f"x {name}" for name in shown)]
    found = []
    for task, numbers in result["tasks"].items():
        own, megabytes = numbers["engine_share"], numbers["peak_memory_mb"]
        low, high = numbers["seconds_range"]
        row = [
            task + ("*" if numbers["cut"] else ""),
            f"{numbers['seconds']:.3g} s ({low:.3g}-{high:.3g})",
            f"{numbers['rounds_per_s']:.3g}",
            f"{numbers['steps_per_s']:.3g}",
            f"{numbers['gemm_share']:.0%}",
            "-" if own is None else f"{own:.1%}",
            "-" if megabytes is None else f"{megabytes:,.0f} MB",
        ]
        for name in shown:
            ratio = numbers["ratio"].get(name)
            if ratio is None:
                row.append("absent")
                continue
            low, high = numbers["ratio_range"][name]
            row.append(f"{ratio:.2f} ({low:.2f}-{high:.2f})")
        found.append(row)
    return head, found


def notes(result: dict[str, Any]) -> list[str]:
    """What has to be known beside the table."""
    cut = [f"{task}: {numbers['cut']}" for task, numbers in result["tasks"].items() if numbers["cut"]]
    found = [
        f"{result['workers']} workers; medians over repeats, in brackets the least and the greatest. GEMM "
        "share: the step's matrix products alone, at their shapes and the rate measured in between, over our "
        "round. Engine's own: the workers' time that is no forward or backward pass, waiting included. "
        "Memory: summed PSS of our processes, its peak. x PEER: our rounds in the time of one of the peer's."
    ]
    if "so_lr" in result["tasks"]:
        found.append("so_lr: the products are those of written-out bags, which are not needed.")
    return [*found, *([f"* shorter than the paper's round, for all sides: {'; '.join(cut)}"] if cut else [])]


def print_result(result: dict[str, Any], console: Console | None = None) -> None:
    if console is None:
        console = Console(emoji=False)
        if not console.is_terminal:  # a file has room for the whole table
            console.width = 140
    head, found = rows(result)
    table = Table(title="Speed at the paper's settings, synthetic data", title_justify="left")
    for at, name in enumerate(head):
        table.add_column(name, justify="right" if at else "left", no_wrap=not at)
    for row in found:
        table.add_row(*row)
    console.print(table)
    for line in notes(result):
        console.print(line, highlight=False, markup=False)


def document_lines(result: dict[str, Any]) -> list[str]:
    """The table of a result, for a document."""
    head, found = rows(result)
    where = result["machine"]
    used: dict[str, list[str]] = {}  # what a peer ran with, and on which tasks
    for task, numbers in result["tasks"].items():
        for name, peer in numbers["peers"].items():
            used.setdefault(f"{name}: {_words(peer)}", []).append(task)
    return [
        f"{result['date'][:10]}, commit {result['commit'] or 'unknown'}, {where['cpu']} with "
        f"{where['cores']} cores, {where['system']}, Python {where['python']}, torch {where['torch']}.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'|'.join(['---', *['---:'] * (len(head) - 1)])}|",
        *(f"| {' | '.join(row)} |".replace("*", r"\*") for row in found),
        "",
        *(line.replace("*", r"\*") for line in notes(result)),
        *(f"{words} ({', '.join(tasks)})" for words, tasks in used.items()),
    ]


def _words(peer: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in (peer["versions"] or {}).items())
    return f"{versions}; {peer['settings']}"
