"""`fedopt reproduce all --scale small`: estimated and actual times, and results by task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from claims.markdown import table
from claims.restore import ENDED, restore_runs
from claims.results import EntryResult
from fedopt.formatting import ABSENT, count_noun
from fedopt.reproduction.artifacts.performance import UNTRAINED, method_cell, untrained_cell
from fedopt.reproduction.artifacts.registry import select_artifacts
from fedopt.reproduction.cost_estimate import StepTimes, run_seconds
from fedopt.reproduction.data_sources import find_data_sources
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.published import METHOD_NAMES, METHODS, TASK_NAMES
from fedopt.reproduction.results import RunReader
from fedopt.reproduction.scales import SMALL

ENTRY = "reproduction/small"

Hours = Mapping[str, tuple[int, float]]  # by task: runs, estimated core hours


@cache
def _plan() -> RunPlan:
    tasks = tuple(TASK_NAMES)
    return RunPlan(SMALL, find_data_sources(tasks, "synthetic"), tasks)


def planned_runs(task: str) -> list[PlannedRun]:
    """Return the runs of a task that all tables and figures need, each once."""
    plan = _plan().restrict([task])
    artifacts = select_artifacts("all", (task,), SMALL)
    return list(dict.fromkeys(run for artifact in artifacts for run in artifact.runs(plan)))


def small_scale_hours(times: Mapping[str, StepTimes]) -> dict[str, tuple[int, float]]:
    """Estimate all runs on synthetic data: runs and core hours by task."""
    runs = {task: planned_runs(task) for task in TASK_NAMES}
    seconds = {task: sum(run_seconds(run, times[task]) for run in runs[task]) for task in TASK_NAMES}
    return {task: (len(runs[task]), round(seconds[task] / 3600, 2)) for task in TASK_NAMES}


def times_by_task(result: EntryResult, hours: Hours, cpu: str) -> str:
    """Return the numbers of runs and the core hours by task: the estimate for a CPU type, and the run time.

    The run time is the elapsed time of the runs, which have one process each. It is left out if another CPU
    type computed them.
    """
    rows = []
    for task, (planned, estimate) in hours.items():
        records = [record for record in result.records if record.info["task"] == task]
        ended = [record for record in records if record.status in ENDED]
        is_known = len(ended) == planned and result.cpu_type == cpu
        actual = f"{sum(record.info['seconds'] for record in ended) / 3600:.2f}" if is_known else ABSENT
        diverged = sum(record.status == "diverged" for record in ended)
        rows.append([f"`{task}`", str(planned), str(len(ended)), str(diverged), f"{estimate:.2f}", actual])
    totals = ["all"]
    for column in zip(*(row[1:] for row in rows), strict=True):
        totals.append(ABSENT if ABSENT in column else f"{sum(map(float, column)):.4g}")
    return table(["task", "runs", "ended", "diverged", "estimate", "run time"], [*rows, totals])


def progress(result: EntryResult, hours: Hours, cpu: str) -> str:
    """Return how many runs have ended, and their CPU time in comparison with the estimate."""
    planned = sum(runs for runs, _ in hours.values())
    ended = sum(record.status in ENDED for record in result.records)
    text = f"{ended} of {count_noun(planned, 'run')} have ended"
    if not (result.complete and result.cpu_type == cpu and result.cpu_seconds):
        return text
    actual, estimate = result.cpu_seconds / 3600, sum(estimate for _, estimate in hours.values())
    return (
        f"{text}; they took {actual:.2f} core hours of CPU time, {actual / estimate:.2f} times the estimate"
    )


def results_by_task(result: EntryResult) -> str:
    """Return the performance table of the tasks that have runs, from the code of the reproduction."""
    rows: list[list[str]] = []
    found = {record.info["task"] for record in result.records}
    with TemporaryDirectory() as directory:
        reader = RunReader(_plan(), Path(directory))
        restore_runs(result, reader.out)
        for task in [task for task in TASK_NAMES if task in found]:
            initial = untrained_cell(reader, task)
            methods = [method_cell(reader, task, method).ours_text for method in METHODS]
            rounds = str(SMALL.task_rounds(task))
            rows.append([TASK_NAMES[task], initial.unit, rounds, initial.ours_text, *methods])
    return table(["task", "metric", "rounds", UNTRAINED, *(METHOD_NAMES[m] for m in METHODS)], rows)
