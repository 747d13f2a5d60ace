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
from claims.plan import REPRODUCED_ARTIFACTS
from claims.restore import ENDED
from claims.results import EntryResult, Results
from claims.runner import this_cpu_type
from fedopt.engine.evaluate import is_evaluated
from fedopt.files import write_atomically
from fedopt.formatting import ABSENT
from fedopt.reproduction.artifacts.registry import select_artifacts
from fedopt.reproduction.cost_estimate import StepTimes, measure_step_times, run_seconds
from fedopt.reproduction.cost_estimate import estimate_seconds as run_estimate
from fedopt.reproduction.data_sources import find_data_sources
from fedopt.reproduction.plan import RunPlan
from fedopt.reproduction.published import TASK_NAMES
from fedopt.reproduction.scales import SMALL
from fedopt.runs.records import RunRecord
from fedopt.tasks import TASKS

ESTIMATES = Path(__file__).parent / "estimates.json"


def is_timed(result: EntryResult) -> bool:
    """Whether the CPU time was recorded for runs that use one process each."""
    words = result.command.split()
    is_measured = "serial" in words or "sweep" in words or "reproduce" in words
    return result.complete and is_measured and (result.cpu_seconds or 0) > 60


def store_estimates(results: Results, work: Path) -> Path:
    """Measure steps of all tasks. Store estimates: timed entries in seconds, `reproduce` in core hours.

    Estimates of entries that another CPU type has computed are kept.
    """
    times, cpu = measure_step_times(TASK_NAMES), this_cpu_type()
    entries = dict(_load_estimates()["entries"])
    for result in results.values():
        is_estimated = is_timed(result) and result.records and result.records[0].info["task"] in times
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


def small_scale_hours(times: Mapping[str, StepTimes]) -> dict[str, dict[str, tuple[int, float]]]:
    """Estimate the reproduced artifacts at the small scale on synthetic data: runs and core hours by task."""
    tasks = tuple(TASK_NAMES)
    plan = RunPlan(SMALL, find_data_sources(tasks, "synthetic"), tasks)
    hours: dict[str, dict[str, tuple[int, float]]] = {}
    for name in REPRODUCED_ARTIFACTS:
        artifacts = select_artifacts(name, tasks)
        runs = {run for artifact in artifacts for run in artifact.runs(plan.restrict(artifact.tasks))}
        by_task = {task: [run_seconds(r, times[task]) for r in runs if r.task == task] for task in tasks}
        hours[name] = {
            task: (len(seconds), round(sum(seconds) / 3600, 2)) for task, seconds in by_task.items()
        }
    return hours


def small_scale_total() -> str:
    """Return the estimated hours of `fedopt reproduce all --scale small` on two cores."""
    return f"{sum(hours for _, hours in _load_estimates()['reproduce_small']['all'].values()) / 2:.1f}"


def small_scale_cpu() -> str:
    """Return the type of the CPU on which the core hours were estimated."""
    return str(_load_estimates()["cpu"])


def small_scale_table(results: Results) -> str:
    """Return the core hours of the small scale by task: estimates, and actual times of tasks that ran.

    The runs of `reproduce performance` are part of those of `reproduce all`, so their times are too.
    """
    estimates = _load_estimates()["reproduce_small"]
    rows = []
    for task in TASK_NAMES:
        row, parts = [f"`{task}`"], list[EntryResult | None]()
        for name, hours in estimates.items():
            parts.append(results.get(f"reproduction/{name}/{task}"))
            row += _small_scale_cells(hours[task], parts)
        rows.append(row)
    totals = ["all"]
    for column in zip(*(row[1:] for row in rows), strict=True):
        totals.append(ABSENT if ABSENT in column else f"{sum(map(float, column)):.4g}")
    header = [f"{name}: {column}" for name in estimates for column in ("runs", "ended", "estimate", "actual")]
    return table(["task", *header], [*rows, totals])


def small_scale_progress(results: Results) -> str:
    """Return how many tasks are complete, and the ratio of their actual and estimated times."""
    sentences = []
    for name, hours in _load_estimates()["reproduce_small"].items():
        found = {task: results.get(f"reproduction/{name}/{task}") for task in TASK_NAMES}
        complete = {task: result for task, result in found.items() if result and result.complete}
        sentence = f"`{name}` is complete for {len(complete)} of {len(found)} tasks"
        here = {task: r for task, r in complete.items() if r.cpu_type == small_scale_cpu()}
        if here and name == next(iter(REPRODUCED_ARTIFACTS)):  # later artifacts share its runs
            actual = sum(result.cpu_seconds or 0.0 for result in here.values()) / 3600
            sentence += f", with {actual / sum(hours[task][1] for task in here):.2f} times the estimated time"
        sentences.append(sentence)
    return "; ".join(sentences)


def _small_scale_cells(
    planned: tuple[int, float], parts: Sequence[EntryResult | None]
) -> tuple[str, str, str, str]:
    """Return the numbers of planned and ended runs, and estimated and actual core hours.

    `planned` has the number of runs and the estimate, `parts` the results of the commands that together have
    these runs.
    """
    runs, estimate = planned
    found = [result for result in parts if result is not None]
    ended = sum(record.status in ENDED for result in found for record in result.records)
    is_known = len(found) == len(parts) and all(
        result.complete and result.cpu_type == small_scale_cpu() for result in found
    )
    actual = f"{sum(result.cpu_seconds or 0.0 for result in found) / 3600:.2f}" if is_known else ABSENT
    return str(runs), str(ended), f"{estimate:.2f}", actual


def _load_estimates() -> dict[str, Any]:
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
    steps = float(np.ceil(sizes / config["client.batch_size"]).mean()) * config.get("client.epochs", 1)
    clients = record.rounds * config["clients_per_round"]
    evaluations = sum(
        is_evaluated(t, config["rounds"], config["eval.every"], config["eval.last_every"])
        for t in range(record.rounds + 1)
    )
    examples = evaluations * (config["eval.sample"] or int(federation.test.sizes.sum()))
    return run_estimate(times, record.info["algorithm"], clients, steps, examples)


def times_table(results: Results) -> str:
    """Return the table of estimated and actual CPU times, one row per directory of results and CPU type."""
    estimates = _load_estimates()["entries"]
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
