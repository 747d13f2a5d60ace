"""Open the backend of a sweep: trials at the same time, or one after the other on all workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fedopt.engine.executors import AUTO, ExecutorOptions, open_executor
from fedopt.errors import ConfigError, unknown
from fedopt.tuning.pool import Backend, SequentialBackend, TrialPool
from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.request import EXECUTORS, SweepRequest
from fedopt.tuning.stacks import STACKING

ALL_EXECUTORS = ("processes", "ray", *EXECUTORS, AUTO)


def check_trial_executor(options: ExecutorOptions) -> None:
    """Check the options for running trials before anything is written.

    Args:
        options: the executor of the trials.

    Returns:
        None. Wrong options raise a `ConfigError` or `UnknownName`.

    Examples:
        >>> check_trial_executor(ExecutorOptions("processes", workers=2))
    """
    if options.name not in (None, *ALL_EXECUTORS):
        raise unknown("executor", str(options.name), ALL_EXECUTORS)
    if options.workers is not None and options.workers < 1:
        raise ConfigError(f"workers must be at least 1, got {options.workers}", keys=["workers"])
    if options.ray_address is not None and options.name != "ray":
        raise ConfigError("ray_address needs the executor ray; set executor=ray", keys=["ray_address"])
    if options.name == "ray":
        from fedopt.engine.executors.ray.connection import import_ray

        import_ray()


@contextmanager
def open_trials(options: ExecutorOptions, progress: SweepProgress) -> Iterator[Backend]:
    """Open a backend that runs several trials at the same time, each on one core."""
    if options.name == "ray":
        from fedopt.tuning.ray_trials import RayTrials

        with RayTrials(options.workers, options.ray_address, progress) as trials:
            yield trials
    else:
        with TrialPool(options.workers, progress) as pool:
            yield pool


@contextmanager
def open_backend(
    request: SweepRequest, options: ExecutorOptions, progress: SweepProgress
) -> Iterator[Backend]:
    """Open the backend of a sweep.

    Trials of a grid and of halving run at the same time, those of Optuna one by one on all workers. Objects
    that worker processes cannot import run one by one in this process; Ray sends them by value. Trials that
    are trained together also run in this process, unless more workers are requested: they take less time
    than starting workers.
    """
    is_stacked = request.executor in STACKING
    if not request.is_importable and options.name != "ray":
        if not is_stacked:
            progress.log(
                "the task or an algorithm is an object of this program; trials run one after the other"
            )
        with open_executor(ExecutorOptions(request.executor or "serial")) as executor:
            yield SequentialBackend(executor, progress)
    elif request.search == "optuna" or (is_stacked and options.workers in (None, 1)):
        name = request.executor or options.name or "processes"
        with open_executor(replace(options, name=name)) as executor:
            yield SequentialBackend(executor, progress)
    else:
        with open_trials(options, progress) as trials:
            yield trials
