"""`fedopt reproduce all --scale small`: estimated and actual times, and results by task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryDirectory

from claims.markdown import table
from claims.restore import restore_runs
from claims.results import EntryResult
from fedopt.formatting import ABSENT, count_noun
from fedopt.runs.records import RunRecord
from fedopt.tuning.trials import is_finished
from fedopt_paper.artifacts.performance import UNTRAINED, method_cell, untrained_cell
from fedopt_paper.artifacts.registry import select_artifacts
from fedopt_paper.cost_estimate import StepTimes, run_seconds
from fedopt_paper.data_sources import find_data_sources
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.published import METHOD_NAMES, METHODS, TASK_NAMES
from fedopt_paper.results import RunReader
from fedopt_paper.scales import SMALL

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
    sums = [0.0] * 5
    for task, (planned, estimate) in hours.items():
        ended = ended_runs(result, task)
        is_known = len(ended) == planned and result.cpu_type == cpu
        actual = sum(record.info["seconds"] for record in ended) / 3600 if is_known else nan
        diverged = sum(record.status == "diverged" for record in ended)
        numbers = [planned, len(ended), diverged, estimate, actual]
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        rows.append([f"`{task}`", *_time_cells(*numbers)])
    header = ["task", "runs", "ended", "diverged", "estimate", "run time", "run time / estimate"]
    return table(header, [*rows, ["all", *_time_cells(*sums)]])


def _time_cells(planned: float, ended: float, diverged: float, estimate: float, actual: float) -> list[str]:
    times = [ABSENT, ABSENT] if isnan(actual) else [f"{actual:.2f}", f"{actual / estimate:.2f}"]
    return [*(f"{count:.0f}" for count in (planned, ended, diverged)), f"{estimate:.2f}", *times]


def ended_runs(result: EntryResult, task: str) -> list[RunRecord]:
    """Return the planned runs of a task that have ended.

    The directory may also have runs that an earlier version of the scale has planned. They have other rates,
    or the same rates and another number of rounds.
    """
    reader = RunReader(_plan(), Path())
    rounds = {reader.trial(run).path: int(run.settings["rounds"]) for run in planned_runs(task)}
    return [r for r in result.records if r.path in rounds and is_finished(r, rounds[r.path])]


def progress(result: EntryResult, hours: Hours, cpu: str) -> str:
    """Return how many of the planned runs have ended, and the CPU time of the command."""
    planned = sum(runs for runs, _ in hours.values())
    ended = sum(len(ended_runs(result, task)) for task in hours)
    text = f"{ended} of {count_noun(planned, 'run')} have ended."
    if not (result.complete and result.cpu_type == cpu and result.cpu_seconds):
        return text
    actual, estimate = result.cpu_seconds / 3600, sum(estimate for _, estimate in hours.values())
    ratio = f"{actual / estimate:.2f} times the estimate"
    return f"{text} The command took {actual:.2f} core hours of CPU time, {ratio}."


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
