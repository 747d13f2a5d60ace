"""Resume runs, comparisons and sweeps from their directories: `fedopt.resume`."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedopt.algorithms import ALGORITHMS
from fedopt.api.groups import GROUP, RunGroup, compare_requests, run_seeds
from fedopt.api.training import run_prepared, shows_progress
from fedopt.api.tuning import TuningResult
from fedopt.documents import is_intact, parse_json, read_regular_file
from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import RunDirectoryError
from fedopt.references import is_reference
from fedopt.remote.location import Location, RemoteUrl, parse_location
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs import remote_run
from fedopt.runs.build_problem import build_problem
from fedopt.runs.config import read_config
from fedopt.runs.discover import SWEEP
from fedopt.runs.loggers import create_loggers
from fedopt.runs.prepare import PreparedRun, RunRequest
from fedopt.runs.records import read_run
from fedopt.runs.result import RunResult
from fedopt.tasks import TASKS, find_task
from fedopt.tuning.command import sweep as run_sweep
from fedopt.tuning.request import SweepRequest


def resume(
    directory: str | os.PathLike[str],
    *,
    executor: str | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: bool | None = None,
    take_over: bool = False,
) -> RunResult | RunGroup | TuningResult:
    """Continue an unfinished run, comparison or sweep.

    All other settings are read from the directory. A run that was started with a task or algorithm object
    is resumed by the call that started it.

    Args:
        directory: a run directory or its URL, or the directory of a comparison or a sweep.
        executor: where clients train, as in `fedopt.run`.
        workers: number of worker processes.
        ray_address: "auto" or HOST:PORT of a Ray cluster.
        progress: whether to show progress; by default in a terminal and in a notebook.
        take_over: with a URL, continue a run that another machine started and did not end. If its process
            still runs, it stops at its next upload.

    Returns:
        The result, as the call that started it would return it.

    Examples:
        >>> def stop_early(step):
        ...     return fedopt.STOP if step.position.round == 1 else None
        >>> settings = {"rounds": 2, "config": {"client.steps": 1}, "out": "runs/stopped"}
        >>> fedopt.run("synthetic_lr", callback=stop_early, **settings).train[-1]["round"]
        1
        >>> fedopt.resume("runs/stopped").train[-1]["round"]
        2
    """
    path = parse_location(directory, "a directory or its URL")
    options = ExecutorOptions(executor, workers, ray_address=ray_address)
    if isinstance(path, RemoteUrl) or (path / "config.toml").is_file():
        return _resume_run(path, options, shows_progress(progress), take_over)
    if (path / SWEEP).is_file():
        return _resume_sweep(path, options, shows_progress(progress))
    if (path / GROUP).is_file():
        return _resume_group(path, options, shows_progress(progress))
    raise RunDirectoryError(
        f"{path} is not the directory of a run, a comparison or a sweep; name one of them", path=path
    )


def _resume_run(out: Location, executor: ExecutorOptions, progress: bool, take_over: bool) -> RunResult:
    if take_over and isinstance(out, RemoteUrl):
        remote_run.take_over(out)
    with remote_run.downloaded(out, checkpoints=False) as path:
        prepared, command = _prepare_recorded(path)
    return run_prepared(
        prepared,
        executor,
        out=out,
        command=command,
        loggers=create_loggers(_recorded_loggers(command)),
        progress=progress,
    )


def _prepare_recorded(path: Path) -> tuple[PreparedRun, str]:
    """Prepare the run that a directory records. Return its command too."""
    if not (path / "config.toml").is_file():
        raise RunDirectoryError(f"{path} is not a run directory; only single runs resume at a URL", path=path)
    config, command = read_config(path / "config.toml"), str(read_run(path).info.get("command", ""))
    _check_names(path, config.task, [config.algorithm])
    if config.init != "seed" and not checkpoints.rounds(path / "checkpoints"):
        raise RunDirectoryError(
            f"{path} has no checkpoint, and its initial weights are in a file; repeat its command: {command}",
            path=path,
        )
    task = find_task(config.task)
    prepared = PreparedRun(config, build_problem(task, config), task.better, None)
    return prepared, command


def _recorded_loggers(command: str) -> list[str]:
    """The loggers of a recorded command.

    >>> _recorded_loggers("fedopt run so_lr --log wandb,mlflow --rounds 5")
    ['wandb', 'mlflow']
    """
    words = shlex.split(command)
    names = [after for word, after in pairwise(words) if word == "--log"]
    names += [word.removeprefix("--log=") for word in words if word.startswith("--log=")]
    return [name.strip() for text in names for name in text.split(",") if name.strip()]


def _resume_group(path: Path, executor: ExecutorOptions, progress: bool) -> RunGroup:
    document = _read_json(path / GROUP)
    try:
        requests = [RunRequest.from_document(request) for request in document["requests"]]
        kind, seeds = document["kind"], document["seeds"]
    except (KeyError, TypeError) as error:
        raise _damaged(path / GROUP, error) from error
    for request in requests:
        _check_names(path, request.task_name, [request.algorithm_name])
    recorded = requests[0].executor
    options = replace(
        recorded,
        name=executor.name or recorded.name,
        workers=executor.workers or recorded.workers,
        ray_address=executor.ray_address or recorded.ray_address,
    )
    requests = [replace(request, executor=options) for request in requests]
    if kind == "seeds":
        return run_seeds(requests[0], seeds, out=path, progress=progress)
    return compare_requests(requests, seeds=seeds, out=path, progress=progress)


def _resume_sweep(path: Path, executor: ExecutorOptions, progress: bool) -> TuningResult:
    document = _read_json(path / SWEEP)
    try:
        request = SweepRequest.from_document(document)
    except (KeyError, TypeError) as error:
        raise _damaged(path / SWEEP, error) from error
    _check_names(path, request.task_name, request.algorithm_names)
    return TuningResult(run_sweep(request, executor, path, quiet=not progress))


def _check_names(path: Path, task: str, algorithms: list[str]) -> None:
    """Refuse runs of objects of a Python program."""
    unknown = [name for name in algorithms if name not in ALGORITHMS and not is_reference(name)]
    if task not in TASKS and not is_reference(task):
        unknown.insert(0, task)
    if unknown:
        raise RunDirectoryError(
            f"{path} was started in Python with the object {unknown[0]!r}, which it does not contain; repeat "
            "the call that started it, with the same directory",
            path=path,
        )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        document = parse_json(read_regular_file(file))
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from error
    if not isinstance(document, dict) or not is_intact(document):
        raise _damaged(file, "it is not one JSON object, or its checksum differs")
    return document


def _damaged(file: Path, reason: object) -> RunDirectoryError:
    return RunDirectoryError(f"{file} is damaged ({reason}); repeat the command", path=file.parent)
