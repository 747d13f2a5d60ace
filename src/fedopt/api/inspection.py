"""Look at finished runs: evaluate, export and report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from fedopt.api.groups import RunGroup
from fedopt.api.training import shows_progress
from fedopt.api.tuning import TuningResult
from fedopt.display.progress import EvaluationProgress
from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import RunDirectoryError
from fedopt.runs.discover import find_runs
from fedopt.runs.evaluation import Evaluation, EvaluationOptions, evaluate_result, evaluate_run
from fedopt.runs.export import write_export
from fedopt.runs.result import RunResult
from fedopt.tasks import Task, find_task

StrPath = str | os.PathLike[str]
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
        run: a result of `fedopt.run`, or a run directory (its newest checkpoint is used).
        split: "test", "train", or another split of imported data, such as "heldout".
        task: the task or its reference, if `run` is a directory and the task was passed to `fedopt.run` as an
            object.
        sample: number of randomly chosen clients, for an estimate with a confidence interval; all by default.
        executor, workers, progress: as for `fedopt.run`.
    """
    with EvaluationProgress(quiet=not shows_progress(progress)) as shown:
        options = EvaluationOptions(ExecutorOptions(executor, workers), sample, shown.update)
        if isinstance(run, RunResult):
            return evaluate_result(run, split, options)
        return evaluate_run(Path(run), split, options, None if task is None else find_task(task))


def export(
    run: StrPath | RunResult, to: StrPath | None = None, *, task: str | Task | None = None
) -> list[Path]:
    """Write a run's model as safetensors with the module's parameter names, and a model card.

    Args:
        run: a run directory, or a result that has one.
        to: directory for the files; `RUN/export` by default.
        task: the task or its reference, if it was passed to `fedopt.run` as an object.

    Returns:
        The paths of the files.
    """
    path = _run_directory(run)
    if task is None and isinstance(run, RunResult):
        return write_export(path, Path(to or path / "export"), run.model)
    return write_export(path, Path(to or path / "export"), None if task is None else find_task(task).model)


def report(
    runs: AnyRun | Sequence[AnyRun], output: StrPath | None = None, *, title: str | None = None
) -> Path:
    """Write a self-contained HTML page about runs of one task, and return its path.

    Args:
        runs: results, run directories, or directories that contain runs.
        output: the file; by default report.html in the directory, or here for several.
        title: the headline.
    """
    if isinstance(runs, str | os.PathLike | RunResult | RunGroup | TuningResult):
        runs = [runs]
    paths = [_directory(run) for run in runs]
    page, damaged = write_page(paths, None if output is None else Path(output), title)
    for message in damaged:
        warnings.warn(f"left out: {message}", stacklevel=2)
    return page


def _directory(run: AnyRun) -> Path:
    return run.out if isinstance(run, RunGroup | TuningResult) else _run_directory(run)


def _run_directory(run: StrPath | RunResult) -> Path:
    if not isinstance(run, RunResult):
        return Path(run)
    if run.path is None:
        raise RunDirectoryError("this result has no run directory; pass out=DIRECTORY to fedopt.run")
    return run.path


def write_page(
    paths: Sequence[Path], output: Path | None = None, title: str | None = None
) -> tuple[Path, list[str]]:
    """Write an HTML page about all runs at or under `paths`.

    Return the path of the page, and a message for each damaged run that was left out.
    """
    records, damaged = find_runs(paths)
    if not records:
        raise RunDirectoryError(f"no run can be read: {'; '.join(damaged)}", path=paths[0])
    page = output or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    if page.is_dir():
        raise RunDirectoryError(
            f"{page} is a directory; name a file, such as {page / 'report.html'}", path=page
        )
    from fedopt.reporting import default_title, write_report  # imports Jinja2

    write_report(records, page, title or default_title(records))
    return page, damaged
