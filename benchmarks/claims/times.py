"""Estimated and actual CPU times of runs.

`python -m claims estimate` measures steps of each task and stores estimates; the page compares them with the
CPU times that the runner has recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from claims.markdown import table
from claims.results import EntryResult, Results
from claims.runner import this_cpu_type
from claims.small_scale import small_scale_hours
from fedopt.engine.evaluate import is_evaluated
from fedopt.files import write_atomically
from fedopt.formatting import ABSENT
from fedopt.runs.records import RunRecord
from fedopt.tasks import TASKS
from fedopt_paper.cost_estimate import StepTimes, measure_step_times
from fedopt_paper.cost_estimate import estimate_seconds as run_estimate
from fedopt_paper.published import TASK_NAMES

ESTIMATES = Path(__file__).parent / "estimates.json"


def is_timed(result: EntryResult) -> bool:
    """Whether the CPU time was recorded for runs that use one process each.

    The reproduction has a table of its own.
    """
    words = result.command.split()
    is_measured = "serial" in words or "sweep" in words
    return result.complete and is_measured and bool(result.records) and (result.cpu_seconds or 0) > 60


def store_estimates(results: Results, work: Path) -> Path:
    """Measure steps of all tasks. Store estimates: timed entries in seconds, `reproduce` in core hours.

    Estimates of entries that another CPU type has computed are kept.
    """
    times, cpu = measure_step_times(TASK_NAMES), this_cpu_type()
    entries = dict(load_estimates()["entries"])
    for result in results.values():
        is_estimated = is_timed(result) and result.records[0].info["task"] in times
        if is_estimated and result.cpu_type == cpu:
            seconds = [estimate_seconds(r, times[r.info["task"]], work) for r in result.records]
            entries[result.name] = round(sum(seconds), 1)
    document = {
        "entries": dict(sorted(entries.items())),
        "cpu": cpu,
        "reproduce_small": small_scale_hours(times),
    }
    write_atomically(ESTIMATES, json.dumps(document, indent=1) + "\n")
    return ESTIMATES


def load_estimates() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ESTIMATES.read_text())
    return document


def estimate_seconds(record: RunRecord, times: StepTimes, work: Path) -> float:
    """Estimate the CPU time of a run as `fedopt reproduce list` does, from the sizes of its clients.

    A run that has diverged or was stopped by a search has fewer rounds than planned.
    """
    config, source = record.config, record.config["data.source"]
    federation = TASKS[record.info["task"]].federation(
        source if source == "synthetic" else str(work / source)
    )
    sizes = federation.train.sizes
    if record.info["algorithm"] == "centralized":
        sizes = sizes.sum(keepdims=True)  # one client with all examples
    epoch = float(np.ceil(sizes / config["client.batch_size"]).mean())
    steps = config.get("client.steps") or epoch * config.get("client.epochs", 1)
    clients = record.rounds * config["clients_per_round"]
    evaluations = sum(
        is_evaluated(t, config["rounds"], config["eval.every"], config["eval.last_every"])
        for t in range(record.rounds + 1)
    )
    examples = evaluations * (config["eval.sample"] or int(federation.test.sizes.sum()))
    return run_estimate(times, record.info["algorithm"], clients, steps, examples)


def times_table(results: Results) -> str:
    """Return the table of estimated and actual CPU times, one row per directory of results and CPU type."""
    estimates = load_estimates()["entries"]
    groups: dict[tuple[str, str], list[EntryResult]] = {}
    for name, result in sorted(results.items()):
        if is_timed(result):
            groups.setdefault((name.rpartition("/")[0], result.cpu_type), []).append(result)
    rows = [_times_row(group, entries, estimates) for group, entries in sorted(groups.items())]
    header = [
        "results",
        "CPU type",
        "commands",
        "runs",
        "rounds",
        "CPU minutes",
        "estimate",
        "actual / estimate",
    ]
    return table(header, rows) if rows else "No timed run is complete."


def _times_row(
    group: tuple[str, str], entries: Sequence[EntryResult], estimates: Mapping[str, float]
) -> list[str]:
    """Add up the times of some entries. There is a ratio if all of them have an estimate."""
    records = [record for entry in entries for record in entry.records]
    actual = sum(entry.cpu_seconds or 0.0 for entry in entries)
    row = [f"`{group[0]}`", group[1], str(len(entries)), str(len(records))]
    row += [f"{sum(r.rounds for r in records):,}", f"{actual / 60:.0f}"]
    if not all(entry.name in estimates for entry in entries):
        return [*row, ABSENT, ABSENT]
    estimate = sum(estimates[entry.name] for entry in entries)
    return [*row, f"{estimate / 60:.0f}", f"{actual / estimate:.1f}"]
