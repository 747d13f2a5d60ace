"""`fedopt reproduce`: plan the runs of the requested artifacts, run the missing ones, write the page.

Finished and diverged runs are not repeated, so the same command continues after an interruption. Tables and
figures show all tasks that have runs in the directory, so commands for single tasks build one page together.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.documents import parse_json, read_regular_file
from fedopt.engine.executors import ExecutorOptions, available_cores
from fedopt.errors import DiskError, FedoptError, RunDirectoryError
from fedopt.files import Log, disk_errors, lock_directory, no_log, write_atomically
from fedopt.formatting import format_duration
from fedopt.reproduction import page
from fedopt.reproduction.artifacts.registry import Artifact, find_artifacts, parse_tasks, select_artifacts
from fedopt.reproduction.cost_estimate import (
    measure_step_times,
    runs_that_fit_on_disk,
    total_seconds,
)
from fedopt.reproduction.data_sources import find_data_sources, label_notes
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.plotting import add_scale, render
from fedopt.reproduction.published import DATASET_BY_TASK, OPTIMIZERS, SCAFFOLD
from fedopt.reproduction.results import RunReader, runs_directory
from fedopt.reproduction.scales import ReproductionScale
from fedopt.reproduction.table_files import to_csv, to_markdown
from fedopt.runs.directory import check_directory, remove_checkpoints
from fedopt.tuning.runner import run_trials
from fedopt.tuning.trials import Trial

_MARKER = "reproduction.json"  # scale and variant of a directory


@dataclass(frozen=True)
class ReproduceOptions:
    """The arguments of `fedopt reproduce`."""

    artifact: str
    scale: ReproductionScale
    out: Path
    data: str | None = None
    tasks: str | None = None
    executor: ExecutorOptions = ExecutorOptions()
    variant: str = "as_run"
    seeds: tuple[int, ...] = (0,)

    def command(self, artifact: str) -> str:
        """Return the command that reproduces one artifact in the same directory."""
        words = ["fedopt", "reproduce", artifact, "--scale", self.scale.name]
        words += ["--data", self.data] if self.data else []
        words += ["--tasks", self.tasks] if self.tasks else []
        words += ["--variant", self.variant] if self.variant != "as_run" else []
        words += ["--seeds", ",".join(map(str, self.seeds))] if self.seeds != (0,) else []
        return shlex.join([*words, "--out", str(self.out)])


class ArtifactOutcome(NamedTuple):
    """A written artifact and the state of its runs."""

    name: str
    directory: Path
    runs: int
    done: int
    diverged: int

    def document(self) -> dict[str, Any]:
        """Return the outcome for `--json`."""
        return {**self._asdict(), "directory": str(self.directory)}


def reproduce(options: ReproduceOptions, log: Log = no_log) -> list[ArtifactOutcome]:
    """Run what is missing and write all artifacts. After an error, write what exists and raise it."""
    tasks = parse_tasks(options.tasks)
    artifacts = select_artifacts(options.artifact, tasks, options.scale)
    shown_by_artifacts = {task for artifact in artifacts for task in artifact.tasks_at(options.scale)}
    needed = tuple(task for task in tasks if task in shown_by_artifacts)
    find_data_sources(needed, options.data)  # rejects data that these tasks do not need
    shown = tuple(task for task in parse_tasks(None) if task in needed or _has_runs(options.out, task))
    sources = find_data_sources(shown, options.data)
    plan = RunPlan(options.scale.restrict(shown), sources, shown, options.variant, options.seeds)
    reader = RunReader(plan, options.out)
    runs = {artifact: artifact.runs(plan) for artifact in artifacts}
    all_runs = [r for r in dict.fromkeys(chain.from_iterable(runs.values())) if r.task in needed]
    outcomes: dict[Artifact, ArtifactOutcome] = {}

    def write(ready: Sequence[Artifact]) -> None:
        reader.clear()
        for artifact in ready:
            log(f"drawing {artifact.name}")
            outcomes[artifact] = _write_artifact(reader, artifact, runs[artifact], options)
        html = page.render_page(options.out, plan.scale, options.variant)
        write_atomically(options.out / "index.html", html)

    lock = _lock_output(options)
    finished = set(shown) - set(needed)
    try:
        _log_omitted(tasks, options, log)
        _log_estimate(reader, all_runs, options, log)
        for task in (None, *needed):  # first the artifacts without runs
            if task is not None:
                _run_task(reader, [run for run in all_runs if run.task == task], task, options, log)
                finished.add(task)
            ready = [
                artifact
                for artifact in artifacts
                if artifact not in outcomes and {run.task for run in runs[artifact]} <= finished
            ]
            if ready:
                write(ready)
    except FedoptError:
        write([artifact for artifact in artifacts if artifact not in outcomes])
        raise
    finally:
        os.close(lock)
    return [outcomes[artifact] for artifact in artifacts]


def _has_runs(out: Path, task: str) -> bool:
    """Whether the directory has runs of a task."""
    return runs_directory(out, task).is_dir()


def _lock_output(options: ReproduceOptions) -> int:
    """Create or check the output directory and lock it. It holds one scale and one variant."""
    file, out = options.out / _MARKER, options.out
    content = {"scale": options.scale.name, "variant": options.variant}
    if not check_directory(out, "reproduction", _MARKER, ("runs",)):
        lock = lock_directory(out, "reproduction")
        write_atomically(file, json.dumps(content, indent=2) + "\n")
        return lock
    try:
        existing = {key: str(parse_json(read_regular_file(file))[key]) for key in content}
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{file} is damaged ({error}); restore it or choose another directory"
        raise RunDirectoryError(message, path=out) from error
    for key, value in existing.items():
        if value != content[key]:
            message = f"{out} holds a reproduction with {key} {value}; choose another directory"
            raise RunDirectoryError(message, path=out)
    return lock_directory(out, "reproduction")


def _log_omitted(tasks: Sequence[str], options: ReproduceOptions, log: Log) -> None:
    """Log the tasks that requested artifacts leave out, because they have no sweeps at this scale."""
    named, scale = find_artifacts(options.artifact), options.scale
    omitted = [t for t in tasks if any(t in a.tasks and t not in a.tasks_at(scale) for a in named)]
    if omitted:
        names = ", ".join(omitted)
        log(f"scale {scale.name} has no sweeps for {names}: heat maps and tuning tables omit them")


def _log_estimate(reader: RunReader, runs: Sequence[PlannedRun], options: ReproduceOptions, log: Log) -> None:
    """Log the estimated time at the paper's scale, which takes days, of runs that the disk can hold."""
    waiting = [] if options.scale.rounds is not None else [run for run in runs if not reader.is_over(run)]
    if not waiting:
        return
    times = measure_step_times(dict.fromkeys(run.task for run in waiting))
    seconds, skipped = 0.0, 0
    for task in times:
        stateless, stateful = _split_by_state([run for run in waiting if run.task == task])
        seconds += total_seconds(stateless, times, options.executor.workers or available_cores())
        try:
            if stateful:
                seconds += total_seconds(stateful, times, _parallel_runs(reader, stateful[0], options))
        except DiskError:  # a later message explains it
            skipped += len(stateful)
    cores = options.executor.workers or available_cores()  # the size of a Ray cluster is not known yet
    ray = options.executor.name == "ray"
    place = f"on {cores} cores like those of this machine" if ray else "on this machine"
    estimate = f"about {format_duration(seconds)} {place} for {len(waiting) - skipped:,} runs"
    rest = f" ({skipped:,} do not fit on the disk)" if skipped else ""
    log(f"{estimate}{rest}; `--scale small` is shorter")


def _parallel_runs(reader: RunReader, run: PlannedRun, options: ReproduceOptions) -> int:
    """Return how many runs with client state run at a time, or raise a DiskError if the disk is too small."""
    cores = options.executor.workers or available_cores()
    return max(1, min(runs_that_fit_on_disk(reader, run), cores))


def _split_by_state(runs: Sequence[PlannedRun]) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """Divide runs into those without and those with client state.

    Clients of SCAFFOLD keep state, which needs disk space for each visited client.
    """
    return [run for run in runs if run.algorithm != SCAFFOLD], [r for r in runs if r.algorithm == SCAFFOLD]


def _run_task(
    reader: RunReader, runs: Sequence[PlannedRun], task: str, options: ReproduceOptions, log: Log
) -> None:
    """Run the unfinished runs of a task, and remove checkpoints that are not kept."""
    kept = set(_runs_with_checkpoints(reader.plan))
    removable = {reader.trial(run).path for run in runs if run not in kept}

    def after(trial: Trial) -> None:
        if trial.path in removable:
            remove_checkpoints(trial.path)

    waiting = []
    for run in runs:
        if not reader.is_over(run):
            waiting.append(run)
        elif run in reader.damaged:
            log(f"skipped: {reader.damaged[run]}")
        else:  # an interruption may have left checkpoints
            after(reader.trial(run))
    if waiting:
        log(f"{task}: {len(waiting)} of {len(runs)} runs to do, data {reader.plan.source(task).directory}")
    stateless, stateful = _split_by_state(waiting)
    try:
        if stateless:
            run_trials([reader.trial(run) for run in stateless], options.executor, task, after)
        if stateful:
            _run_with_client_state(reader, stateful, options, log, after)
    finally:
        reader.clear()


def _run_with_client_state(
    reader: RunReader,
    runs: Sequence[PlannedRun],
    options: ReproduceOptions,
    log: Log,
    after: Callable[[Trial], None],
) -> None:
    """Run as many runs in parallel as the disk can hold. Skip all if it cannot hold one."""
    name = f"{runs[0].task} {runs[0].algorithm}"
    try:
        workers = _parallel_runs(reader, runs[0], options)
    except DiskError as error:
        log(f"skipped: {len(runs)} runs of {name}: {error}")
        reader.without_space.update(runs)
        return
    executor = replace(options.executor, workers=workers)
    run_trials([reader.trial(run) for run in runs], executor, name, after)


def _runs_with_checkpoints(plan: RunPlan) -> list[PlannedRun]:
    """Return the runs whose checkpoints are kept: those with the paper's rates, if the scale keeps them."""
    if not plan.scale.keep_checkpoints:
        return []
    return [
        run for task in plan.tasks for method in OPTIMIZERS for run in plan.published_per_seed(task, method)
    ]


def _write_artifact(
    reader: RunReader, artifact: Artifact, runs: Sequence[PlannedRun], options: ReproduceOptions
) -> ArtifactOutcome:
    """Write the files of an artifact, each atomically."""
    directory, plan = options.out / artifact.name, artifact.restrict(reader.plan)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    content = artifact.content(reader)
    datasets = dict.fromkeys(DATASET_BY_TASK[task] for task in plan.tasks)
    labels = [plan.sources[name].label for name in datasets]
    shown = replace(options, tasks=",".join(plan.tasks)) if options.tasks else options
    command, scale = shown.command(artifact.name), plan.scale
    add_scale(content.figure, scale.title)
    figure = render(content.figure, artifact.name)
    notes = "\n".join(f"- {note}" for note in (*content.notes, *label_notes(labels), *scale.reductions))
    markdown = (
        f"## {artifact.title}\n\n{artifact.section}. Scale {scale.name}, variant {options.variant}.\n\n"
        f"{to_markdown(content.tables, directory)}\n{notes}\n\nCommand: `{command}`\n"
    )
    section = page.render_section(artifact, content, figure, scale, labels, command, options.out)
    for name, text in (
        ("figure.svg", figure.svg),
        ("figure.pdf", figure.pdf),
        ("figure.png", figure.png),
        ("numbers.csv", to_csv(content.tables, directory)),
        ("table.md", markdown),
        (page.SECTION, section),
    ):
        write_atomically(directory / name, text)
    states = [record.status for record in reader.records(runs)]
    return ArtifactOutcome(
        artifact.name, directory, len(runs), states.count("done"), states.count("diverged")
    )
