"""`fedopt reproduce --scale small`: its runs, estimated and actual times, and results by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from claims.markdown import table
from claims.restore import ENDED, restore_runs
from claims.results import EntryResult, Results
from fedopt.formatting import ABSENT
from fedopt.reproduction.artifacts.performance import UNTRAINED, method_cell, untrained_cell
from fedopt.reproduction.artifacts.registry import select_artifacts
from fedopt.reproduction.cost_estimate import StepTimes, run_seconds
from fedopt.reproduction.data_sources import find_data_sources
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.published import METHOD_NAMES, METHODS, TASK_NAMES
from fedopt.reproduction.results import RunReader
from fedopt.reproduction.scales import SMALL

# The runs of the first artifact are part of the second: the paper's rates, and the grid of SCAFFOLD.
ARTIFACTS = ("performance", "all")
PERFORMANCE = ARTIFACTS[0]

Hours = Mapping[str, Mapping[str, tuple[int, float]]]  # by artifact and task: runs, estimated core hours


@cache
def _plan() -> RunPlan:
    tasks = tuple(TASK_NAMES)
    return RunPlan(SMALL, find_data_sources(tasks, "synthetic"), tasks)


def planned_runs(artifact: str, task: str) -> list[PlannedRun]:
    """Return the runs of a task that an artifact needs, each once."""
    plan = _plan().restrict([task])
    artifacts = select_artifacts(artifact, (task,))
    return list(dict.fromkeys(run for each in artifacts for run in each.runs(plan)))


@cache
def performance_paths(task: str) -> frozenset[Path]:
    """Return the directories of the runs of `reproduce performance`, relative to its output directory."""
    reader = RunReader(_plan(), Path())
    return frozenset(reader.trial(run).path for run in planned_runs(PERFORMANCE, task))


def small_scale_hours(times: Mapping[str, StepTimes]) -> dict[str, dict[str, tuple[int, float]]]:
    """Estimate the artifacts on synthetic data: runs and core hours by artifact and task."""
    hours: dict[str, dict[str, tuple[int, float]]] = {}
    for artifact in ARTIFACTS:
        runs = {task: planned_runs(artifact, task) for task in TASK_NAMES}
        seconds = {task: sum(run_seconds(run, times[task]) for run in runs[task]) for task in TASK_NAMES}
        hours[artifact] = {task: (len(runs[task]), round(seconds[task] / 3600, 2)) for task in TASK_NAMES}
    return hours


def times_by_task(results: Results, hours: Hours, cpu: str) -> str:
    """Return the core hours by task: the estimates for a CPU type, and the actual times on it.

    The runs of `reproduce performance` are part of those of `reproduce all`, so their times are too.
    """
    rows = []
    for task in TASK_NAMES:
        row, parts = [f"`{task}`"], list[EntryResult | None]()
        for artifact, estimates in hours.items():
            parts.append(results.get(f"reproduction/{artifact}/{task}"))
            row += _cells(estimates[task], parts, cpu)
        rows.append(row)
    totals = ["all"]
    for column in zip(*(row[1:] for row in rows), strict=True):
        totals.append(ABSENT if ABSENT in column else f"{sum(map(float, column)):.4g}")
    header = [f"{name}: {column}" for name in hours for column in ("runs", "ended", "estimate", "actual")]
    return table(["task", *header], [*rows, totals])


def _cells(
    planned: tuple[int, float], parts: Sequence[EntryResult | None], cpu: str
) -> tuple[str, str, str, str]:
    """Return the numbers of planned and ended runs, and estimated and actual core hours.

    `planned` has the number of runs and the estimate, `parts` the results of the commands that together have
    these runs.
    """
    runs, estimate = planned
    found = [result for result in parts if result is not None]
    ended = sum(record.status in ENDED for result in found for record in result.records)
    is_known = len(found) == len(parts) and all(_is_timed(result, cpu) for result in found)
    actual = f"{sum(result.cpu_seconds or 0.0 for result in found) / 3600:.2f}" if is_known else ABSENT
    return str(runs), str(ended), f"{estimate:.2f}", actual


def _is_timed(result: EntryResult, cpu: str) -> bool:
    return result.complete and result.cpu_type == cpu


def progress(results: Results, hours: Hours, cpu: str) -> str:
    """Return how many tasks are complete, and how long `performance` took in comparison with the estimate."""
    sentences = []
    for artifact in hours:
        found = [results.get(f"reproduction/{artifact}/{task}") for task in TASK_NAMES]
        complete = sum(result is not None and result.complete for result in found)
        sentences.append(f"`{artifact}` is complete for {complete} of {len(found)} tasks")
    timed = {
        task: result.cpu_seconds or 0.0
        for task in TASK_NAMES
        if (result := results.get(f"reproduction/{PERFORMANCE}/{task}")) and _is_timed(result, cpu)
    }
    if timed:
        ratio = sum(timed.values()) / 3600 / sum(hours[PERFORMANCE][task][1] for task in timed)
        sentences.append(f"`{PERFORMANCE}` took {ratio:.2f} times the estimate on this CPU type")
    return "; ".join(sentences)


def results_by_task(results: Results) -> str:
    """Return the performance table of the tasks whose runs are stored, from the code of the reproduction."""
    found = {task: results.get(f"reproduction/{PERFORMANCE}/{task}") for task in TASK_NAMES}
    rows: list[list[str]] = []
    with TemporaryDirectory() as directory:
        reader = RunReader(_plan(), Path(directory))
        for task, result in found.items():
            if result is not None and result.complete:
                restore_runs(result, reader.out)
                initial = untrained_cell(reader, task)
                methods = [method_cell(reader, task, method).ours_text for method in METHODS]
                rounds = str(SMALL.task_rounds(task))
                rows.append([TASK_NAMES[task], initial.unit, rounds, initial.ours_text, *methods])
    return table(["task", "metric", "rounds", UNTRAINED, *(METHOD_NAMES[m] for m in METHODS)], rows)
