"""Adaptive federated optimization: the algorithms of Reddi et al. (ICLR 2021), with reproducible results.

    import fedopt
    result = fedopt.run("emnist_cr", algorithm="fedyogi", rounds=10)

Names are imported on first use, so that workers and `fedopt --help` start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedopt.lazy import lazy_names

if TYPE_CHECKING:
    from fedopt import partition
    from fedopt.algorithms import Algorithm, ClientResult, Optimizer, Round, Work
    from fedopt.api import (
        Evaluation,
        LoadedRun,
        RunGroup,
        RunRequest,
        TuningResult,
        compare,
        evaluate,
        export,
        load,
        own_task,
        report,
        resume,
        run,
        run_seeds,
        sweep,
    )
    from fedopt.data.federate import federate
    from fedopt.engine.aggregate import RoundReport
    from fedopt.engine.executors import workers
    from fedopt.engine.loop import Position, Step
    from fedopt.errors import FedoptError, RunError, UserError
    from fedopt.runs.callbacks import STOP
    from fedopt.runs.loggers import RunLogger
    from fedopt.runs.result import RunResult
    from fedopt.tasks import Task
    from fedopt.version import __version__

__all__ = [
    "Algorithm",
    "ClientResult",
    "Evaluation",
    "FedoptError",
    "LoadedRun",
    "Optimizer",
    "Position",
    "Round",
    "RoundReport",
    "RunError",
    "RunGroup",
    "RunLogger",
    "RunRequest",
    "RunResult",
    "STOP",
    "Step",
    "Task",
    "TuningResult",
    "UserError",
    "Work",
    "__version__",
    "compare",
    "evaluate",
    "export",
    "federate",
    "load",
    "own_task",
    "partition",
    "report",
    "resume",
    "run",
    "run_seeds",
    "sweep",
    "workers",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fedopt.algorithms": "Algorithm ClientResult Optimizer Round Work",
            "fedopt.api": "Evaluation LoadedRun RunGroup RunRequest TuningResult compare evaluate export "
            "load own_task report resume run run_seeds sweep",
            "fedopt.data.federate": "federate",
            "fedopt.engine.executors": "workers",
            "fedopt.engine.loop": "Position Step",
            "fedopt.engine.aggregate": "RoundReport",
            "fedopt.errors": "FedoptError RunError UserError",
            "fedopt.partition": "partition",
            "fedopt.runs.callbacks": "STOP",
            "fedopt.runs.loggers": "RunLogger",
            "fedopt.runs.result": "RunResult",
            "fedopt.tasks": "Task",
            "fedopt.version": "__version__",
        },
    )
