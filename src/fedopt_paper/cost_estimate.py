"""Estimates of the time and the disk space that runs need, and their list for `fedopt reproduce list`.

The time is rounds x cohort x local steps, plus the evaluations, divided by the cores. The CPU time of a step
and of an evaluation batch is measured for each task, so other work on the machine changes it little. SCAFFOLD
takes longer: a client computes with dense vectors in each step, and stores one at the end. The work of the
server is small and not included.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fedopt import RunRequest
from fedopt.engine import available_cores, is_evaluated
from fedopt.formatting import format_duration
from fedopt.runs import check_disk, client_state_bytes, time_client, time_evaluation
from fedopt.tasks import TASKS
from fedopt.tuning import Trial
from fedopt_paper.artifacts.registry import ARTIFACTS, GROUPS
from fedopt_paper.data_sources import dataset_sizes, synthetic_source
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.published import (
    ADAPTIVE,
    DATASET_BY_TASK,
    DATASETS,
    METHOD_NAMES,
    METHODS,
    SCAFFOLD,
    TASK_NAMES,
    paper_settings,
)
from fedopt_paper.results import RunReader
from fedopt_paper.scales import SCALES, ReproductionScale

_WIDE_TERMINAL = 120  # columns; narrower terminals omit the titles
STARTUP_SECONDS = 0.6  # of a run, before its first and after its last round
_TIMED_STEPS = 2
_MANY_STEPS, _LONG_STEP = 10, 0.1  # steps that show what SCAFFOLD adds to each; fewer if one takes this long
_EVALUATED = 100  # test examples that are timed together
_TIMED_CLIENTS = 3  # generating all clients of a task would take seconds
_SAME_MODEL = {"cifar10": "cifar100"}  # ResNet-18 takes the longest to time
# Vectors in a checkpoint: the model and the state of the server optimizer.
_CHECKPOINT_VECTORS = {**dict.fromkeys(ADAPTIVE, 3), "fedavgm": 2, SCAFFOLD: 2}
_KEPT = {SCAFFOLD: 1}  # vectors that a client keeps between rounds


class StepTimes(NamedTuple):
    """Seconds on one core, and the size of the model."""

    step: float  # one local step of a client
    evaluation: float  # 100 test examples
    parameters: int = 0
    scaffold_step: float = 0.0  # what SCAFFOLD adds to a step
    scaffold_client: float = 0.0  # what SCAFFOLD adds to a client

    def client(self, algorithm: str, steps: float) -> float:
        """Return the time of a client in a round."""
        if algorithm != SCAFFOLD:
            return steps * self.step
        return steps * (self.step + self.scaffold_step) + self.scaffold_client


def measure_step_times(
    tasks: Iterable[str], on_task: Callable[[str], None] = lambda task: None
) -> dict[str, StepTimes]:
    """Time a step and an evaluation of each task in this process, on synthetic data."""
    times: dict[str, StepTimes] = {}
    for task in tasks:
        timed = _SAME_MODEL.get(task, task)
        if timed not in times:
            on_task(timed)
            times[timed] = _measure(timed)
        times[task] = times[timed]
    return times


def _measure(task: str) -> StepTimes:
    def client(steps: int, algorithm: str = "fedavg") -> float:
        return time_client(
            RunRequest(task, algorithm, {**few, "client.steps": steps, "clients_per_round": 1})
        )

    few = {"data.clients": _TIMED_CLIENTS}
    evaluation = time_evaluation(RunRequest(task, settings=few), _EVALUATED) * _EVALUATED
    step = client(_TIMED_STEPS) / _TIMED_STEPS
    many = _MANY_STEPS if step < _LONG_STEP else _TIMED_STEPS
    one, more = (client(n, SCAFFOLD) - n * step for n in (1, many))
    added_step = max(0.0, (more - one) / (many - 1))
    return StepTimes(step, evaluation, _parameters(task), added_step, max(0.0, one - added_step))


def _parameters(task: str) -> int:
    return sum(p.numel() for p in TASKS[task].model().parameters())


@cache
def epoch_steps(task: str) -> float:
    """Return the mean number of steps in a client's epoch. The synthetic data has the paper's sizes."""
    batch_size = paper_settings(task).batch_size
    return float(np.ceil(TASKS[task].federation("synthetic").train.sizes / batch_size).mean())


def run_seconds(run: PlannedRun, times: StepTimes) -> float:
    """Estimate the time of one run on one core."""
    settings = run.settings
    rounds = int(settings["rounds"])
    sizes, batch_size = DATASETS[DATASET_BY_TASK[run.task]], paper_settings(run.task).batch_size
    if "client.steps" in settings:
        steps = float(settings["client.steps"])
    elif run.algorithm == "centralized":
        share = settings.get("data.clients", 0) / sizes.train_clients or 1.0
        steps = share * sizes.train_examples / batch_size
    else:
        steps = epoch_steps(run.task)
    every, last_every = settings["eval.every"], settings["eval.last_every"]
    evaluations = sum(is_evaluated(t, rounds, every, last_every) for t in range(rounds + 1))
    examples = float(evaluations) * (settings["eval.sample"] or sizes.test_examples)
    examples += sizes.test_examples if settings["eval.final"] == "full" else 0
    clients = rounds * float(settings.get("clients_per_round", 1))
    return estimate_seconds(times, run.algorithm, clients, steps, examples)


def estimate_seconds(
    times: StepTimes, algorithm: str, clients: float, steps: float, examples: float
) -> float:
    """Estimate the time of one run on one core.

    `clients` is the number of clients in all rounds, `steps` their mean number of steps in a round, and
    `examples` the number of test examples in all evaluations.
    """
    training = clients * times.client(algorithm, steps)
    return STARTUP_SECONDS + training + examples / _EVALUATED * times.evaluation


def total_seconds(runs: Iterable[PlannedRun], times: Mapping[str, StepTimes], cores: int) -> float:
    """Estimate the time of several runs in parallel. Runs that differ only in rates take the same time."""
    known: dict[tuple[object, ...], float] = {}
    total = 0.0
    for run in runs:
        key = (run.task, run.algorithm, run.settings_items)
        if key not in known:
            known[key] = run_seconds(run, times[run.task])
        total += known[key]
    return total / cores


def run_bytes(trial: Trial, parameters: int, population: int) -> float:
    """Estimate the disk space of a run: its checkpoints and the state that clients keep."""
    config = trial.config
    vectors = _CHECKPOINT_VECTORS.get(config.algorithm, 1) * config.checkpoint.keep
    return 4.0 * parameters * vectors + client_state_bytes(
        config, parameters, _KEPT.get(config.algorithm, 0), population
    )


def runs_that_fit_on_disk(reader: RunReader, run: PlannedRun) -> int:
    """Return how many runs like `run` the disk can hold, or raise a DiskError if it cannot hold one.

    A run performs the same check before its first round, but there the error would stop all runs.
    """
    trial, d = reader.trial(run), _parameters(run.task)
    population = dataset_sizes(reader.plan.source(run.task)).train_clients
    directory = trial.path if trial.path.is_dir() else reader.out
    check_disk(directory, trial.config, d, _KEPT.get(run.algorithm, 0), population)
    return int(shutil.disk_usage(directory).free // max(1.0, run_bytes(trial, d, population)))


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
        trial = reader.trial(reader.plan.sweep(task, method)[0])
        return run_bytes(trial, times[task].parameters, DATASETS[DATASET_BY_TASK[task]].train_clients)

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
    return f"{cost['runs']:,}  {format_duration(cost['seconds']) if cost['runs'] else '–'}"
