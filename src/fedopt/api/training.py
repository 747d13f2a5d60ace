"""Train a task: `fedopt.run`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedopt.algorithms import AlgorithmChoice
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.executors.base import Executor
from fedopt.engine.initial_model import initial_model
from fedopt.engine.loop import Step
from fedopt.errors import ConfigError, ExecutorWarning, ResumeWarning
from fedopt.files import no_log
from fedopt.references import file_name
from fedopt.remote.location import Location, local_path, parse_location
from fedopt.reports.progress import ProgressBar, RunProgress, in_notebook
from fedopt.runs.callbacks import Callback, combine_callbacks
from fedopt.runs.config import Config
from fedopt.runs.execute import execute
from fedopt.runs.loggers import RunLogger, create_loggers
from fedopt.runs.prepare import PreparedRun, RunRequest, with_chosen_executor
from fedopt.runs.result import RunResult
from fedopt.runs.shared_data import open_data
from fedopt.tasks import Task

StrPath = str | os.PathLike[str]


def run(
    task: str | Task,
    algorithm: AlgorithmChoice = "fedavg",
    *,
    rounds: int | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    data: str | None = None,
    executor: str | None = None,
    workers: int | None = None,
    out: StrPath | None = None,
    init: StrPath | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    buffers: str | None = None,
    tensorboard: bool = False,
    log: Sequence[str | RunLogger] = (),
    device: str = "cpu",
    ray_address: str | None = None,
    ray_gpus: float | None = None,
    progress: bool | None = None,
) -> RunResult:
    """Train a task with a federated algorithm.

    Args:
        task: a name of `fedopt tasks`, a reference such as "my_project.tasks:digits", or a task from
            `fedopt.own_task`.
        algorithm: a name of `fedopt algorithms`, a reference, an `Algorithm`, or a function that builds one.
            The function's keyword-only arguments are configuration keys: `alpha` is "client.alpha".
            Worker processes need a function that they can import.
        rounds: number of rounds; the task's own number by default.
        seed: seed of everything random.
        config: configuration with dotted keys as in `config.toml`, for example {"client.lr": 0.1}.
        data: "synthetic", an imported dataset or its directory; for named tasks only.
        executor: "serial" (default), "processes" (default in a `fedopt.workers` block), "vectorised",
            "compiled", "ray" or "auto". With "processes", a script needs the usual
            `if __name__ == "__main__":`, and a small run does not use the workers. With "vectorised" and
            "compiled", clients train many at a time; results differ by rounding, which large learning rates
            amplify. "compiled" is made for small models and needs a C++ compiler. With "ray", clients train
            on a Ray cluster. "auto" is "compiled" for small models and "processes" for others.
        workers: number of worker processes; by default one per core, or one for "vectorised" and "compiled".
        out: run directory, or its URL such as "s3://bucket/run". An existing run is resumed.
        init: safetensors file with the initial weights.
        callback: a function, or several, called with a `Step` after every round and once before the first
            round of a new run. `step.evaluation` has the metrics if the model was evaluated, otherwise
            None. The vectors are copies that stay valid. If a callback returns `fedopt.STOP`, the run ends
            after this round with a checkpoint, and the same call resumes it. If a callback raises an
            error, the run ends with a checkpoint and a `ModelError` that names the callback.
        buffers: treatment of running statistics, such as those of batch normalization: "refuse" (default);
            "freeze" uses those of the initial model; "average" takes the mean over clients; "local" (FedBN)
            leaves them with each client, and evaluates with the mean over the last cohort.
        tensorboard: the same as log=["tensorboard"].
        log: loggers: "tensorboard" (event files in the run directory), "wandb", "mlflow", or objects with
            the methods of `RunLogger`. A resumed run logs each round once.
        device: "cpu", "cuda", "mps", or "auto" for the best one available. Other devices than the CPU
            imply "vectorised", except with "ray".
        ray_address: "auto" or HOST:PORT of a Ray cluster; by default, "ray" starts one in this process.
        ray_gpus: number of GPUs that a Ray worker reserves; by default one if `device` is not the CPU.
        progress: whether to show progress; by default in a terminal and in a notebook.

    Returns:
        The final metrics, the trained model, and everything that was recorded.

    Examples:
        >>> result = fedopt.run("synthetic_lr", algorithm="fedyogi", rounds=2, config={"client.steps": 1})
        >>> result.rounds, result.metric, result.params
        (2, 'accuracy', 610)

        `out` keeps the run. The same call with more rounds continues it:

        >>> first = fedopt.run("synthetic_lr", rounds=1, config={"client.steps": 1}, out="runs/kept")
        >>> longer = fedopt.run("synthetic_lr", rounds=2, config={"client.steps": 1}, out="runs/kept")
        >>> [line["round"] for line in longer.train]
        [1, 2]
    """
    loggers = create_loggers(log)
    tensorboard = tensorboard or "tensorboard" in log
    settings = merge_settings(config, rounds=rounds, seed=seed, buffers=buffers)
    request = RunRequest(
        task,
        algorithm,
        settings,
        data,
        None if init is None else local_path(init, "init"),
        ExecutorOptions(executor, workers, device, ray_address, ray_gpus),
        tensorboard,
    )
    (request,), choice = with_chosen_executor([request])
    return run_prepared(
        request.prepare(),
        request.executor,
        message=choice,
        out=None if out is None else parse_location(out),
        callback=callback,
        tensorboard=tensorboard,
        loggers=loggers,
        progress=shows_progress(progress),
    )


def merge_settings(config: Mapping[str, Any] | None, **options: Any) -> dict[str, Any]:
    """The configuration with the options that are given as arguments of their own."""
    if not isinstance(config or {}, Mapping):
        raise ConfigError(
            f"config is of type {type(config).__name__}; pass a mapping with dotted keys, such as "
            '{"client.lr": 0.1}',
            keys=("config",),
        )
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key in (config or {}):
            raise ConfigError(f"{key} is given as an argument and in config; give it once", keys=(key,))
    return {**(config or {}), **given}


def check_seeds(seeds: Sequence[int] | None) -> None:
    """Raise an error unless `seeds` is None or some seeds."""
    if isinstance(seeds, int):
        raise ConfigError(f"seeds is the number {seeds}; pass a list, such as range(5)", keys=("seeds",))
    if seeds is not None and not seeds:
        raise ConfigError("seeds is empty; pass a list, such as range(5)", keys=("seeds",))


def shows_progress(progress: bool | None) -> bool:
    """Whether to show progress: as requested, by default in a terminal and in a notebook."""
    return sys.stderr.isatty() or in_notebook() if progress is None else progress


def run_prepared(
    prepared: PreparedRun,
    executor: ExecutorOptions,
    *,
    message: str = "",
    out: Location | None = None,
    command: str = "",
    callback: Callback | Sequence[Callback] | None = None,
    tensorboard: bool = False,
    loggers: Sequence[RunLogger] = (),
    progress: bool = False,
) -> RunResult:
    """Execute a prepared run. `message` is shown with its progress, `command` is recorded in run.json."""
    config, metric = prepared.config, prepared.problem.metric
    with ExitStack() as stack:
        shown = None
        if progress:
            bar = stack.enter_context(ProgressBar(config.algorithm, config.rounds))
            shown = RunProgress(bar, config, metric)
            if message:
                shown.log(message)
        opened = stack.enter_context(open_executor(executor, config.vectorised))
        return execute_run(prepared, opened, out, command, tensorboard, shown, callback, loggers)


def execute_run(
    prepared: PreparedRun,
    executor: Executor,
    out: Location | None,
    command: str,
    tensorboard: bool,
    progress: RunProgress | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    loggers: Sequence[RunLogger] = (),
) -> RunResult:
    """Execute a prepared run on an open executor."""
    callbacks = _list_callbacks(callback)
    observers = [combine_callbacks(callbacks)] if callbacks else []
    data = None
    if progress is not None:
        observers.insert(0, progress.on_step)
        progress.show_phase("opening the data")
        data = open_data(prepared.problem, prepared.config.eval.sample)
        initial = prepared.initial or initial_model(prepared.problem)
        prepared = prepared._replace(initial=initial)
        progress.describe(len(data.federation.train.ids), len(initial.x))

    def on_step(step: Step) -> object:
        return [observe(step) for observe in observers][-1] if observers else None

    result = execute(
        prepared,
        executor,
        out=out,
        command=command,
        on_step=on_step,
        log=no_log if progress is None else progress.log,
        warn=_warn if progress is None else progress.log,
        on_phase=no_log if progress is None else progress.show_phase,
        data=data,
        log_small_run=None if executor.is_started else no_log if progress is None else progress.log_once,
        tensorboard=tensorboard,
        loggers=loggers,
    )
    if result.fallback_reason:
        message = f"clients were trained one after the other: {result.fallback_reason}"
        if progress is not None:
            progress.log_once(message)
        else:
            warnings.warn(message, ExecutorWarning, stacklevel=4)
    return result


def _list_callbacks(callback: Callback | Sequence[Callback] | None) -> list[Callback]:
    callbacks = callback if isinstance(callback, Sequence) else [] if callback is None else [callback]
    for one in callbacks:
        if not callable(one):
            raise ConfigError(
                f"callback is of type {type(one).__name__}; pass a function of a fedopt.Step, or several",
                keys=("callback",),
            )
    return list(callbacks)


def _warn(message: str) -> None:
    """Report damage or another version of a resumed run where no progress is shown."""
    warnings.warn(message, ResumeWarning, stacklevel=6)


def default_directory(config: Config, *, several_seeds: bool = False) -> Path:
    """runs/TASK/ALGORITHM-HASH. The same configuration always has the same directory."""
    digest = config.short_hash(ignore=("seed",) if several_seeds else ())
    return Path("runs") / file_name(config.task) / f"{file_name(config.algorithm)}-{digest}"
