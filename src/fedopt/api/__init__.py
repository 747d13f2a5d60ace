"""The public Python API. The command line calls the same functions."""

from fedopt.api.groups import RunGroup, compare, compare_requests, run_seeds
from fedopt.api.inspection import evaluate, export, report, write_page
from fedopt.api.resuming import resume
from fedopt.api.training import default_directory, run, run_prepared
from fedopt.api.tuning import BestTrial, TuningResult, sweep
from fedopt.runs.evaluation import Evaluation
from fedopt.runs.load import LoadedRun, load
from fedopt.runs.prepare import RunRequest, with_chosen_executor
from fedopt.tasks.own import own_task

__all__ = [
    "BestTrial",
    "Evaluation",
    "LoadedRun",
    "RunGroup",
    "RunRequest",
    "TuningResult",
    "compare",
    "compare_requests",
    "default_directory",
    "evaluate",
    "export",
    "load",
    "own_task",
    "report",
    "resume",
    "run",
    "run_prepared",
    "run_seeds",
    "sweep",
    "with_chosen_executor",
    "write_page",
]
