"""Look at finished runs: evaluate, export and report."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from fedopt.api.groups import RunGroup
from fedopt.api.training import shows_progress
from fedopt.api.tuning import TuningResult
from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import DataError, RunDirectoryError
from fedopt.references import is_reference
from fedopt.remote.location import Location, StrPath, local_path, parse_location
from fedopt.reports.progress import EvaluationProgress
from fedopt.reports.summary import parse_rule
from fedopt.runs.config import read_config
from fedopt.runs.discover import find_runs
from fedopt.runs.evaluation import Evaluation, EvaluationOptions, evaluate_result, evaluate_run
from fedopt.runs.export import write_export
from fedopt.runs.remote_run import downloaded
from fedopt.runs.result import RunResult
from fedopt.tasks import TASKS, Task, find_task

MAX_CARD_CLIENTS = 1000  # clients that are evaluated for a model card
RUN = "a result of fedopt.run, a run directory or its URL"
AnyRun = StrPath | RunResult | RunGroup | TuningResult


def evaluate(
    run: StrPath | RunResult,
    split: str = "test",
    *,
    task: str | Task | None = None,
    sample: int | None = None,
    executor: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Evaluation:
    """Evaluate a model on every example of a split: the value of each client, and percentiles over clients.

    Args:
        run: a result of `fedopt.run`, or a run directory or its URL (its newest checkpoint is used).
        split: "test", "train", or another split of imported data, such as "heldout".
        task: the task or its reference, if `run` is a directory and the task was passed to `fedopt.run` as an
            object.
        sample: number of randomly chosen clients, for an estimate with a confidence interval; all by default.
        executor: where clients are evaluated, as in `fedopt.run`.
        workers: number of worker processes.
        progress: whether to show progress; by default in a terminal and in a notebook.

    Returns:
        The metrics over all examples and those of each client.

    Examples:
        >>> result = fedopt.run("synthetic_lr", rounds=1, config={"client.steps": 1})
        >>> evaluation = fedopt.evaluate(result)
        >>> len(evaluation.by_client), sorted(evaluation.percentiles)
        (30, [5, 25, 50, 75, 95])
    """
    with EvaluationProgress(quiet=not shows_progress(progress)) as shown:
        options = EvaluationOptions(ExecutorOptions(executor, workers), sample, shown.update)
        if isinstance(run, RunResult):
            return evaluate_result(run, split, options)
        found = None if task is None else find_task(task)
        return evaluate_run(parse_location(run, RUN), split, options, found)


def export(
    run: StrPath | RunResult, to: StrPath | None = None, *, task: str | Task | None = None
) -> list[Path]:
    """Write a run's model as safetensors with the module's parameter names, and a model card.

    Args:
        run: a run directory or its URL, or a result that has one.
        to: directory for the files; by default `RUN/export`, or `export` here for a URL.
        task: the task or its reference, if it was passed to `fedopt.run` as an object.

    Returns:
        The paths of the files.

    Examples:
        >>> result = fedopt.run("synthetic_lr", rounds=1, config={"client.steps": 1}, out="runs/exported")
        >>> [path.name for path in fedopt.export(result)]
        ['model.safetensors', 'MODEL_CARD.md']
    """
    location = _run_directory(run)
    default = location / "export" if isinstance(location, Path) else Path("export")
    directory = default if to is None else local_path(to, "to")
    with downloaded(location, checkpoints=True) as path:
        known = _task_of(path) if task is None else find_task(task)
        model = run.model if known is None and isinstance(run, RunResult) else None
        evaluation = _evaluate_for_card(run if known is None and model is not None else path, known)
        return write_export(path, directory, known, model, evaluation)


def _task_of(run: Path) -> Task | None:
    """Return the task of a run; None if it was an object of a Python program."""
    name = read_config(run / "config.toml").task if (run / "config.toml").is_file() else ""
    return find_task(name) if name in TASKS or is_reference(name) else None


def _evaluate_for_card(run: StrPath | RunResult, task: Task | None) -> Evaluation | None:
    """Evaluate the exported weights on all test clients, or on 1,000 of them; None without the data."""
    if not isinstance(run, RunResult) and task is None:
        return None
    try:
        return evaluate(run, task=task, sample=MAX_CARD_CLIENTS)
    except DataError:
        return None


def report(
    runs: AnyRun | Sequence[AnyRun],
    output: StrPath | None = None,
    *,
    title: str | None = None,
    rule: str = "last",
) -> Path:
    """Write a self-contained HTML page about runs of one task.

    Args:
        runs: results, run directories, directories that contain runs, or their URLs.
        output: the file; by default report.html in the directory, or here for several and for URLs.
        title: the headline.
        rule: ranking of the runs: "last", by the last evaluation, or "paper", by the mean of the last 100
            rounds.

    Returns:
        The path of the page.

    Examples:
        >>> result = fedopt.run("synthetic_lr", rounds=1, config={"client.steps": 1}, out="runs/reported")
        >>> fedopt.report(result, "page.html", title="One round").name
        'page.html'
    """
    if not isinstance(runs, Sequence) or isinstance(runs, str):
        runs = [runs]
    locations = [_directory(run) for run in runs]
    file = None if output is None else local_path(output, "output")
    page, damaged = write_page(locations, file, title, rule)
    for message in damaged:
        warnings.warn(f"left out: {message}", stacklevel=2)
    return page


def _directory(run: AnyRun) -> Location:
    return run.out if isinstance(run, RunGroup | TuningResult) else _run_directory(run)


def _run_directory(run: StrPath | RunResult) -> Location:
    if not isinstance(run, RunResult):
        return parse_location(run, RUN)
    if run.path is None:
        raise RunDirectoryError("this result has no run directory; pass out=DIRECTORY to fedopt.run")
    return run.path


def write_page(
    locations: Sequence[Location],
    output: Path | None = None,
    title: str | None = None,
    rule: str = "last",
) -> tuple[Path, list[str]]:
    """Write an HTML page about all runs at or under `locations`.

    Return the path of the page, and a message for each damaged run that was left out.
    """
    ranking = parse_rule(rule)
    with ExitStack() as copies:
        paths = [copies.enter_context(downloaded(one, checkpoints=False)) for one in locations]
        records, damaged = find_runs(paths)
        if not records:
            raise RunDirectoryError(f"no run can be read: {'; '.join(damaged)}", path=paths[0])
    only = locations[0] if len(locations) == 1 else None
    page = output or (only if isinstance(only, Path) else Path()) / "report.html"
    if page.is_dir():
        raise RunDirectoryError(
            f"{page} is a directory; name a file, such as {page / 'report.html'}", path=page
        )
    from fedopt.reports.page import (
        default_title,
        write_report,  # imports Jinja2
    )

    write_report(records, page, title or default_title(records), ranking)
    return page, damaged
