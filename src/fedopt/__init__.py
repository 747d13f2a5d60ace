"""Adaptive federated optimization: the algorithms of Reddi et al. (ICLR 2021), with reproducible results.

    import fedopt
    result = fedopt.run("emnist_cr", algorithm="fedyogi", rounds=10)

Names are imported on first use, so that workers and `fedopt --help` start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_MODULES = {
    "Algorithm": "fedopt.algorithms",
    "ClientResult": "fedopt.algorithms",
    "Evaluation": "fedopt.api",
    "FedoptError": "fedopt.errors",
    "LoadedRun": "fedopt.api",
    "Optimizer": "fedopt.algorithms",
    "Position": "fedopt.engine.loop",
    "Round": "fedopt.algorithms",
    "RoundReport": "fedopt.engine.aggregate",
    "RunError": "fedopt.errors",
    "RunGroup": "fedopt.api",
    "RunLogger": "fedopt.runs.loggers",
    "RunRequest": "fedopt.api",
    "RunResult": "fedopt.runs.result",
    "STOP": "fedopt.runs.callbacks",
    "Step": "fedopt.engine.loop",
    "Task": "fedopt.tasks",
    "TuningResult": "fedopt.api",
    "UserError": "fedopt.errors",
    "Work": "fedopt.algorithms",
    "__version__": "fedopt.version",
    "compare": "fedopt.api",
    "evaluate": "fedopt.api",
    "export": "fedopt.api",
    "federate": "fedopt.data.federate",
    "load": "fedopt.api",
    "own_task": "fedopt.api",
    "report": "fedopt.api",
    "resume": "fedopt.api",
    "run": "fedopt.api",
    "run_seeds": "fedopt.api",
    "sweep": "fedopt.api",
    "workers": "fedopt.engine.executors",
}


def __getattr__(name: str) -> Any:
    if name == "partition":
        return import_module("fedopt.partition")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'fedopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
