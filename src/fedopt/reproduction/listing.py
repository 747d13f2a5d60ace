"""`fedopt reproduce list`: all artifacts with the number of runs and the estimated time at each scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedopt.engine.executors import available_cores
from fedopt.formatting import ABSENT, format_duration
from fedopt.reproduction.artifacts.registry import ARTIFACTS, GROUPS
from fedopt.reproduction.cost_estimate import StepTimes, measure_step_times, run_bytes, total_seconds
from fedopt.reproduction.data_sources import synthetic_source
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.published import DATASET_BY_TASK, DATASETS, METHOD_NAMES, METHODS, TASK_NAMES
from fedopt.reproduction.results import RunReader
from fedopt.reproduction.scales import SCALES, ReproductionScale

_WIDE_TERMINAL = 120  # columns; narrower terminals omit the titles


def estimate_all(console: Console, workers: int | None = None) -> dict[str, Any]:
    """Return the runs and seconds of every artifact at every scale. The measurement takes seconds."""
    with console.status("timing a step of each task") as status:
        times = measure_step_times(TASK_NAMES, lambda task: status.update(f"timing a step of {task}"))
    cores = workers or available_cores()
    plans = {scale.name: _plan(scale) for scale in SCALES.values()}

    def costs(names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Estimate some artifacts at every scale. Shared runs count once."""
        runs = {
            scale: dict.fromkeys(run for name in names for run in ARTIFACTS[name].runs(plan))
            for scale, plan in plans.items()
        }
        return {scale: _cost(list(planned), times, cores) for scale, planned in runs.items()}

    return {
        "cores": cores,
        "artifacts": [
            {"name": name, "title": artifact.title, "where": artifact.section, **costs([name])}
            for name, artifact in ARTIFACTS.items()
        ],
        "all": costs(list(ARTIFACTS)),
        "largest_trial": {scale.name: largest_run(scale, times) for scale in SCALES.values()},
        "seconds": {task: step_times._asdict() for task, step_times in times.items()},
    }


def _plan(scale: ReproductionScale) -> RunPlan:
    return RunPlan(scale, {name: synthetic_source(name) for name in DATASETS}, tuple(TASK_NAMES))


def largest_run(scale: ReproductionScale, times: Mapping[str, StepTimes]) -> dict[str, Any]:
    """Find the run that needs the most disk space."""
    reader = RunReader(_plan(scale), Path())

    def size(task: str, method: str) -> float:
        config = reader.trial(reader.plan.sweep(task, method)[0]).config
        return run_bytes(config, times[task].parameters, DATASETS[DATASET_BY_TASK[task]].train_clients)

    largest, task, method = max(
        (size(task, method), task, method) for task in TASK_NAMES for method in METHODS
    )
    return {"task": task, "algorithm": method, "bytes": round(largest)}


def _cost(runs: Sequence[PlannedRun], times: Mapping[str, StepTimes], cores: int) -> dict[str, float]:
    return {"runs": len(runs), "seconds": round(total_seconds(runs, times, cores), 1)}


def print_list(estimates: dict[str, Any], console: Console) -> None:
    """Print the estimates as a table, smallest scale first."""
    scales = list(SCALES)[::-1]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("artifact", no_wrap=True)
    is_wide = console.width >= _WIDE_TERMINAL
    if is_wide:
        table.add_column("title")
    for scale in scales:
        table.add_column(f"{scale}\nruns, time", justify="right", no_wrap=True)
    total = {"name": "all", "title": "everything, shared runs once", **estimates["all"]}
    for row in [*estimates["artifacts"], total]:
        costs = [_runs_and_time(row, scale) for scale in scales]
        table.add_row(row["name"], *([row["title"]] if is_wide else []), *costs)
    console.print(table)
    sizes = [f"{_disk(estimates['largest_trial'][scale])} at {scale}" for scale in scales]
    groups = ", ".join(name for name in GROUPS if name != "all")
    for line in (
        *(f"{scale}: {SCALES[scale].summary}" for scale in scales),
        f"Disk space of the largest run: {'; '.join(sizes)}. Runs of sweeps release it when they end. Runs "
        "that do not fit on the disk are left blank.",
        f"Times are estimates for {estimates['cores']} cores from a few measured steps of each task. "
        f"Finished runs are not repeated, and artifacts share runs. Groups: {groups}, all.",
    ):
        console.print(line, highlight=False)


def _disk(largest: Mapping[str, Any]) -> str:
    method, task = METHOD_NAMES[largest["algorithm"]], TASK_NAMES[largest["task"]]
    return f"{largest['bytes'] / 1e9:,.1f} GB ({method}, {task})"


def _runs_and_time(row: Mapping[str, Any], scale: str) -> str:
    artifact, cost = ARTIFACTS.get(row["name"]), row[scale]
    if artifact and not artifact.tasks_at(SCALES[scale]):
        return "no sweeps"
    return f"{cost['runs']:,}  {format_duration(cost['seconds']) if cost['runs'] else ABSENT}"
