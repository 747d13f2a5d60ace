"""A benchmark result as a table on the terminal and in a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .peers import PEERS

_DEFINITIONS = (
    "GEMM share: time of the matrix products alone, at their real shapes, divided by the time of our round. "
    "Engine overhead: share of the workers' time outside forward and backward passes, including waiting. "
    "Memory: peak of the summed PSS of our processes. x PEER: time of the peer's round divided by the "
    "time of our round."
)
_COLUMNS = ("task", "round", "rounds/s", "steps/s", "GEMM share", "engine overhead", "memory")


def table_rows(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows as text."""
    tasks = result["tasks"]
    peers = [name for name in PEERS if any(name in numbers["ratio"] for numbers in tasks.values())]
    header = [*_COLUMNS, *(f"x {name}" for name in peers)]
    return header, [_row(task, numbers, peers) for task, numbers in tasks.items()]


def _row(task: str, numbers: dict[str, Any], peers: list[str]) -> list[str]:
    megabytes = numbers["peak_memory_mb"]
    low, high = numbers["seconds_range"]
    row = [
        task + ("*" if numbers["cut"] else ""),
        f"{numbers['seconds']:.3g} s ({low:.3g}-{high:.3g})",
        f"{numbers['rounds_per_s']:.3g}",
        f"{numbers['steps_per_s']:.3g}",
        f"{numbers['gemm_share']:.0%}",
        "-" if numbers["engine_share"] is None else f"{numbers['engine_share']:.1%}",
        "-" if megabytes is None else f"{megabytes:,.0f} MB",
    ]
    for name in peers:
        if name not in numbers["ratio"]:
            row.append("absent")
            continue
        low, high = numbers["ratio_range"][name]
        row.append(f"{numbers['ratio'][name]:.2f} ({low:.2f}-{high:.2f})")
    return row


def table_notes(result: dict[str, Any]) -> list[str]:
    """Return the notes on this result that belong below the table."""
    notes = [
        f"Workers: {result['workers']}. Values are medians over the repeats, with minimum and maximum in "
        "brackets."
    ]
    if "so_lr" in result["tasks"]:
        notes.append("so_lr: the matrix products are those of dense bags of words, which the engine avoids.")
    small = [task for task, numbers in result["tasks"].items() if len(numbers["executors"]) > 1]
    if small:
        notes.append(
            f"{', '.join(small)}: 10 clients with 10 steps of 10 examples each, on the executor "
            f"{result['tasks'][small[0]]['executor']}; the table of executors compares it with the others."
        )
    cut = [f"{task}: {numbers['cut']}" for task, numbers in result["tasks"].items() if numbers["cut"]]
    if cut:
        notes.append(f"* shorter than the full round, for all simulators: {'; '.join(cut)}.")
    return notes


def executor_rows(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of executors, for workloads that are measured on several."""
    tasks = {task: numbers for task, numbers in result["tasks"].items() if len(numbers["executors"]) > 1}
    peers = [name for name in PEERS if any(name in numbers["peers"] for numbers in tasks.values())]
    rows = []
    for task, numbers in tasks.items():
        for executor, times in numbers["executors"].items():
            ratios = [
                f"{numbers['peers'][name]['seconds'] / times['seconds']:.2f}"
                if name in numbers["peers"]
                else "absent"
                for name in peers
            ]
            low, high = (1000 * seconds for seconds in times["seconds_range"])
            milliseconds = f"{1000 * times['seconds']:.3g} ms ({low:.3g}-{high:.3g})"
            rows.append([task, executor, milliseconds, f"{times['rounds_per_s']:.3g}", *ratios])
    return ["task", "executor", "round", "rounds/s", *(f"x {name}" for name in peers)], rows


def print_result(result: dict[str, Any]) -> None:
    console = Console(emoji=False)
    if not console.is_terminal:
        console.width = 140
    _print_table(console, "Speed on synthetic data", *table_rows(result))
    header, rows = executor_rows(result)
    if rows:
        _print_table(console, "Executors", header, rows)
    for note in (*table_notes(result), _DEFINITIONS):
        console.print(note, highlight=False, markup=False)


def _print_table(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left", no_wrap=not index)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown_lines(result: dict[str, Any]) -> list[str]:
    """Return the table, its notes and the settings of the peers as Markdown."""
    machine = result["machine"]
    executors = executor_rows(result)
    return [
        f"{result['date'][:10]}, commit {result['commit'] or 'unknown'}, {machine['cpu']} with "
        f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}, torch "
        f"{machine['torch']}.",
        "",
        *markdown_table(*table_rows(result)),
        "",
        *([*markdown_table(*executors), ""] if executors[1] else []),
        *(f"- {note}".replace("*", r"\*") for note in table_notes(result)),
        *(f"- {settings}." for settings in _peer_settings(result)),
    ]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        f"|{'|'.join(['---', *['---:'] * (len(header) - 1)])}|",
        *(f"| {' | '.join(row)} |".replace("*", r"\*") for row in rows),
    ]


def _peer_settings(result: dict[str, Any]) -> list[str]:
    """Return one text for each peer: its versions, and its settings with the tasks that they belong to."""
    texts = []
    for name in PEERS:
        tasks_by_settings: dict[str, list[str]] = {}
        versions: dict[str, str] = {}
        for task, numbers in result["tasks"].items():
            if peer := numbers["peers"].get(name):
                tasks_by_settings.setdefault(peer["settings"], []).append(task)
                versions |= peer["versions"] or {}
        if tasks_by_settings:
            listed = ", ".join(f"{package} {version}" for package, version in versions.items())
            parts = [f"{settings} ({', '.join(tasks)})" for settings, tasks in tasks_by_settings.items()]
            texts.append(f"{name}: {'; '.join([listed, *parts] if listed else parts)}")
    return texts
