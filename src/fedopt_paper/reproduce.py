"""`fedopt reproduce`: plan the runs of the requested artifacts, run the missing ones, write the page.

Finished and diverged runs are not repeated, so the same command continues after an interruption. Tables and
figures show all tasks that have runs in the directory, so commands for single tasks build one page together.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fedopt import FedoptError
from fedopt.engine import ExecutorOptions, available_cores
from fedopt.errors import DiskError
from fedopt.files import locked_directory, write_atomically
from fedopt.formatting import format_duration
from fedopt.reports import render_template
from fedopt.runs import remove_checkpoints
from fedopt.tuning import Trial, run_trials
from fedopt_paper.artifacts.cells import ArtifactContent
from fedopt_paper.artifacts.registry import ARTIFACTS, Artifact, find_artifacts, parse_tasks, select_artifacts
from fedopt_paper.comparison import relative_link, to_csv, to_markdown
from fedopt_paper.cost_estimate import measure_step_times, runs_that_fit_on_disk, total_seconds
from fedopt_paper.data_sources import find_data_sources, label_notes
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.plotting import RenderedFigure, add_scale, render
from fedopt_paper.published import DATASET_BY_TASK, OPTIMIZERS, SCAFFOLD
from fedopt_paper.results import RunReader, runs_directory
from fedopt_paper.scales import ReproductionScale

Log = Callable[[str], None]
_MARKER = "reproduction.json"  # scale and variant of a directory
SECTION = "section.html"
FILES = ("figure.svg", "figure.pdf", "figure.png", "numbers.csv", "table.md")
_OPEN_TABLES = 2  # further tables are collapsed
_MATHEMATICS = {
    "as_run": "The server mathematics is that of the authors’ code",
    "as_printed": "The server mathematics is as printed",
}


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


def reproduce(options: ReproduceOptions, log: Log = lambda message: None) -> list[ArtifactOutcome]:
    """Run what is missing and write all artifacts. After an error, write what exists and raise it."""
    tasks = parse_tasks(options.tasks)
    artifacts = select_artifacts(options.artifact, tasks, options.scale)
    shown_by_artifacts = {task for artifact in artifacts for task in artifact.tasks_at(options.scale)}
    needed = tuple(task for task in tasks if task in shown_by_artifacts)
    find_data_sources(needed, options.data)  # rejects data that these tasks do not need
    shown = tuple(
        task for task in parse_tasks(None) if task in needed or runs_directory(options.out, task).is_dir()
    )
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
        html = render_page(options.out, plan.scale, options.variant)
        write_atomically(options.out / "index.html", html)

    finished = set(shown) - set(needed)
    content = {"scale": options.scale.name, "variant": options.variant}
    with locked_directory(options.out, "reproduction", _MARKER, content, ("runs",)):
        write_atomically(options.out / _MARKER, json.dumps(content, indent=2) + "\n")
        try:
            _log_omitted(tasks, options, log)
            _log_estimate(reader, all_runs, options, log)
            for task in (None, *needed):  # first the artifacts without runs
                if task is not None:
                    _run_task(reader, [run for run in all_runs if run.task == task], task, options, log)
                    finished.add(task)
                waiting = [artifact for artifact in artifacts if artifact not in outcomes]
                if ready := [a for a in waiting if {run.task for run in runs[a]} <= finished]:
                    write(ready)
        except FedoptError:
            write([artifact for artifact in artifacts if artifact not in outcomes])
            raise
    return [outcomes[artifact] for artifact in artifacts]


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
    kept: set[PlannedRun] = set()
    if reader.plan.scale.keep_checkpoints:  # of runs with the paper's rates
        kept = {run for method in OPTIMIZERS for run in reader.plan.published_per_seed(task, method)}
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
        if not stateful:
            return
        try:  # as many runs in parallel as the disk can hold
            workers = _parallel_runs(reader, stateful[0], options)
        except DiskError as error:
            log(f"skipped: {len(stateful)} runs of {task} {SCAFFOLD}: {error}")
            reader.without_space.update(stateful)
            return
        executor = replace(options.executor, workers=workers)
        run_trials([reader.trial(run) for run in stateful], executor, f"{task} {SCAFFOLD}", after)
    finally:
        reader.clear()


def _write_artifact(
    reader: RunReader, artifact: Artifact, runs: Sequence[PlannedRun], options: ReproduceOptions
) -> ArtifactOutcome:
    """Write the files of an artifact, each atomically."""
    directory, plan = options.out / artifact.name, artifact.restrict(reader.plan)
    directory.mkdir(exist_ok=True)
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
    section = render_section(artifact, content, figure, scale, labels, command, options.out)
    for name, text in (
        ("figure.svg", figure.svg),
        ("figure.pdf", figure.pdf),
        ("figure.png", figure.png),
        ("numbers.csv", to_csv(content.tables, directory)),
        ("table.md", markdown),
        (SECTION, section),
    ):
        write_atomically(directory / name, text)
    states = [record.status for record in reader.records(runs)]
    return ArtifactOutcome(
        artifact.name, directory, len(runs), states.count("done"), states.count("diverged")
    )


def render_section(
    artifact: Artifact,
    content: ArtifactContent,
    figure: RenderedFigure,
    scale: ReproductionScale,
    labels: Sequence[str],
    command: str,
    out: Path,
) -> str:
    """Render the figure, the tables, the notes and the command of an artifact."""
    return render_template(
        "fedopt_paper",
        "section.html.j2",
        artifact=artifact,
        figure=figure,
        tables=[table for table in content.tables if table.on_page and table.cells],
        open_tables=_OPEN_TABLES,
        link=lambda run: relative_link(run, out),
        labels=[label for label in dict.fromkeys(labels) if label],
        notes=[*content.notes, *label_notes(labels)],
        scale=scale,
        command=command,
        files=FILES,
    )


def render_page(out: Path, scale: ReproductionScale, variant: str) -> str:
    """Render the page with all sections in `out`."""
    artifacts = [a for a in ARTIFACTS.values() if (out / a.name / SECTION).is_file()]
    return render_template(
        "fedopt_paper",
        "page.html.j2",
        scale=scale,
        variant=variant,
        mathematics=_MATHEMATICS[variant],
        artifacts=artifacts,
        sections=[(out / a.name / SECTION).read_text(encoding="utf-8") for a in artifacts],
    )
