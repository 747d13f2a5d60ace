"""The public Python API. The command line calls the same functions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.algorithms import AlgorithmChoice
from fedopt.display.progress import ProgressBar, RunProgress
from fedopt.engine.executors import open_executor
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.devices import vectorised_on
from fedopt.engine.loop import Step
from fedopt.errors import ConfigError, FedoptError, RunDirectoryError, RunError, UserError
from fedopt.files import Log, no_log
from fedopt.references import file_name
from fedopt.reporting import write_report
from fedopt.runs import tensorboard as event_files
from fedopt.runs.callbacks import Callback, combine_callbacks
from fedopt.runs.config import Config
from fedopt.runs.discover import find_runs
from fedopt.runs.evaluation import evaluate as evaluate
from fedopt.runs.execute import execute
from fedopt.runs.export import export as export
from fedopt.runs.load import LoadedRun as LoadedRun
from fedopt.runs.load import load as load
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.prepare import RunRequest as RunRequest
from fedopt.runs.records import RunRecord, read_run
from fedopt.runs.result import RunResult
from fedopt.tasks import Task
from fedopt.tasks.own import own_task as own_task

StrPath = str | os.PathLike[str]


def run(
    task: str | Task,
    *,
    algorithm: AlgorithmChoice = "fedavg",
    rounds: int | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    data: str | None = None,
    executor: str = "serial",
    workers: int | None = None,
    out: StrPath | None = None,
    init: StrPath | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    buffers: str | None = None,
    tensorboard: bool = False,
    device: str = "cpu",
    progress: bool = False,
) -> RunResult:
    """Train a task with a federated algorithm.

    Args:
        task: a name of `fedopt tasks`, or a task from `fedopt.own_task`.
        algorithm: a name of `fedopt algorithms`, an `Algorithm`, or a function that builds one. Worker
            processes need a function that they can import.
        rounds: number of rounds; the task's own number by default.
        seed: seed of everything random.
        config: configuration with dotted keys as in `config.toml`, for example {"client.lr": 0.1}.
        data: "synthetic", an imported dataset or its directory; for named tasks only.
        executor: "serial", "processes" or "vectorised". With "processes", a script needs the usual
            `if __name__ == "__main__":`. With "vectorised", clients train many at a time; results are equal
            up to rounding.
        workers: number of worker processes; one per core by default.
        out: run directory. An existing run is resumed.
        init: safetensors file with the initial weights.
        callback: a function, or several, called with a `Step` after every round and once before the first
            round of a new run. `step.evaluation` has the metrics if the model was evaluated, otherwise
            None. The vectors are copies that stay valid. If a callback returns `fedopt.STOP`, the run ends
            after this round with a checkpoint, and the same call resumes it. If a callback raises an
            error, the run ends with a checkpoint and a `ModelError` that names the callback.
        buffers: "refuse" or "freeze" models with running statistics.
        tensorboard: also write TensorBoard event files.
        device: "cpu", "cuda", "mps", or "auto" for the best one available. Other devices than the CPU
            imply "vectorised".
        progress: show progress on stderr.
    """
    options = {"rounds": rounds, "seed": seed, "buffers": buffers}
    settings = {**(config or {}), **{key: value for key, value in options.items() if value is not None}}
    request = RunRequest(
        task,
        algorithm,
        settings,
        data,
        None if init is None else Path(init),
        vectorised_on(executor, device),
        tensorboard,
    )
    return run_prepared(
        request.prepare(),
        executor=executor,
        workers=workers,
        out=None if out is None else Path(out),
        callback=callback,
        tensorboard=tensorboard,
        progress=progress,
    )


def run_prepared(
    prepared: PreparedRun,
    *,
    executor: str = "serial",
    workers: int | None = None,
    out: Path | None = None,
    command: str = "",
    callback: Callback | Sequence[Callback] | None = None,
    tensorboard: bool = False,
    progress: bool = False,
) -> RunResult:
    """Execute a prepared run. `command` is recorded in run.json."""
    with open_executor(executor, workers, prepared.config.vectorised) as opened:
        return _execute(prepared, opened, out, command, tensorboard, progress, callback)


def _execute(
    prepared: PreparedRun,
    executor: Executor,
    out: Path | None,
    command: str,
    tensorboard: bool,
    progress: bool,
    callback: Callback | Sequence[Callback] | None = None,
    heading: str = "",
) -> RunResult:
    config, problem, better, initial = prepared
    callbacks = [] if callback is None else [callback] if callable(callback) else list(callback)
    observers = [combine_callbacks(callbacks)] if callbacks else []
    log: Log = no_log
    with ExitStack() as stack:
        if progress:
            bar = stack.enter_context(ProgressBar(config.algorithm, config.rounds))
            log = bar.log
            observers.insert(0, RunProgress(bar, config).on_step)
            if heading:
                log(heading)

        def on_step(step: Step) -> object:
            return [observe(step) for observe in observers][-1] if observers else None

        return execute(
            config,
            problem,
            executor,
            out=out,
            command=command,
            better=better,
            initial=initial,
            on_step=on_step,
            log=log,
            tensorboard=tensorboard,
        )


def default_directory(config: Config, *, several_seeds: bool = False) -> Path:
    """runs/TASK/ALGORITHM-HASH. The same configuration always has the same directory."""
    digest = config.short_hash(ignore=("seed",) if several_seeds else ())
    return Path("runs") / file_name(config.task) / f"{file_name(config.algorithm)}-{digest}"


class RunGroup(NamedTuple):
    """Several runs that were executed together."""

    out: Path
    results: list[RunResult]
    failures: list[str]  # one message per run without a result
    paths: list[Path]  # of all runs
    report: Path | None = None

    def records(self) -> list[RunRecord]:
        """Read the run directories. Runs that failed before they began have none."""
        started = [path for path in self.paths if (path / "config.toml").is_file()]
        if not started:
            raise RunError("; ".join(self.failures))
        return [read_run(path) for path in started]


class _Job(NamedTuple):
    name: str
    request: RunRequest
    prepared: PreparedRun
    folder: Path  # below the directory of the group


def run_seeds(
    request: RunRequest,
    seeds: Sequence[int],
    *,
    executor: str = "serial",
    workers: int | None = None,
    out: Path | None = None,
    progress: bool = False,
) -> RunGroup:
    """Execute a run with several seeds, in OUT/seed-0, OUT/seed-1, ... Existing runs are resumed."""
    jobs = _seed_jobs(request, seeds, Path())
    out = out or default_directory(jobs[0].prepared.config, several_seeds=True)
    _refuse_runs([out])
    return _run_all(jobs, executor, workers, out, progress)


def compare(
    requests: Sequence[RunRequest],
    *,
    seeds: Sequence[int] | None = None,
    executor: str = "serial",
    workers: int | None = None,
    out: Path | None = None,
    progress: bool = False,
) -> RunGroup:
    """Execute one run per request, or one per request and seed, and write OUT/report.html.

    The requests have the same task and different algorithms. All configurations are checked before the
    first round.
    """
    if not requests:
        raise ConfigError("no algorithms; for example --algorithms fedavg,fedyogi", keys=("algorithms",))
    task, names = requests[0].task_name, [request.algorithm_name for request in requests]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise ConfigError(f"--algorithms has {repeated!r} twice; use each name once", keys=("algorithms",))
    jobs: list[_Job] = []
    for name, request in zip(names, requests, strict=True):
        if seeds is None:
            jobs.append(_Job(name, request, request.prepare(), Path(file_name(name))))
        else:
            jobs += _seed_jobs(request, seeds, Path(file_name(name)))
    if out is None:
        ignore = () if seeds is None else ("seed",)
        hashes = {job.prepared.config.short_hash(ignore=ignore) for job in jobs}
        digest = hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()[:6]
        out = Path("runs") / file_name(task) / f"compare-{digest}"
    if seeds is not None:
        _refuse_runs([out, *(out / file_name(name) for name in names)])
    group = _run_all(jobs, executor, workers, out, progress)
    page = out / "report.html"
    write_report(group.records(), page, f"{len(requests)} federated optimizers on {task}")
    return group._replace(report=page)


def _seed_jobs(request: RunRequest, seeds: Sequence[int], folder: Path) -> list[_Job]:
    seeded = [request.with_settings(seed=seed) for seed in seeds]
    return [
        _Job(f"{request.algorithm_name}, seed {seed}", one, one.prepare(), folder / f"seed-{seed}")
        for seed, one in zip(seeds, seeded, strict=True)
    ]


def _run_all(jobs: Sequence[_Job], executor: str, workers: int | None, out: Path, progress: bool) -> RunGroup:
    """Execute one run after the other. A run that diverges does not stop the others."""
    if any(job.request.tensorboard for job in jobs):
        event_files.require()
    group = RunGroup(out, [], [], [out / job.folder for job in jobs])
    with open_executor(executor, workers, jobs[0].request.vectorised) as opened:
        for number, (name, request, prepared, folder) in enumerate(jobs, start=1):
            # The progress of a comparison shows the algorithm anyway.
            is_seed = folder.name.startswith("seed-")
            heading = f"{name} ({number} of {len(jobs)})" if is_seed else ""
            path, command = out / folder, request.command(out / folder)
            try:
                result = _execute(
                    prepared, opened, path, command, request.tensorboard, progress, heading=heading
                )
                group.results.append(result)
            except UserError:
                raise
            except FedoptError as error:
                group.failures.append(f"{name}: {error}")
    return group


def _refuse_runs(paths: Sequence[Path]) -> None:
    """Refuse to put the runs of several seeds into the directory of one run."""
    for path in paths:
        if (path / "config.toml").exists():
            raise RunDirectoryError(
                f"{path} is a run with one seed, and --seeds makes several; choose another --out", path=path
            )


def report(
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
            f"{page} is a directory; name a file, such as -o {page / 'report.html'}", path=page
        )
    if title is None:
        names = list(dict.fromkeys(record.label for record in records))
        methods = ", ".join(names) if len(names) <= 3 else f"{len(names)} federated optimizers"
        title = f"{methods} on {records[0].info['task']}"
    write_report(records, page, title)
    return page, damaged
