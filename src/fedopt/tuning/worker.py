"""Execution of one work item in the current process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

from fedopt.engine.executors.base import Executor
from fedopt.engine.loop import Step
from fedopt.engine.problem import Problem
from fedopt.errors import Diverged, FedoptError, RunError
from fedopt.runs.execute import execute
from fedopt.runs.loggers import create_loggers
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.shared_data import SharedData, open_data
from fedopt.tasks import Task
from fedopt.tuning.trials import Trial, WorkItem


def run_item(item: WorkItem, executor: Executor, on_round: Callable[[], None]) -> None:
    """Start or resume a trial and run it to the round of the work item. Call `on_round` after each round.

    A diverged trial is a regular outcome, which its run directory records. Other errors name the trial.
    """
    trial = item.trial
    with explained_errors(trial), suppress(Diverged):
        prepared = trial.request.prepare()
        execute(
            prepared,
            executor,
            out=trial.path,
            command=trial.command,
            on_step=partial(count_round, on_round),
            tensorboard=trial.request.tensorboard,
            loggers=create_loggers(trial.request.log),
            data=shared_data(trial, prepared),
            until=item.until,
        )


def count_round(on_round: Callable[[], None], step: Step) -> None:
    if step.position.round > 0:
        on_round()


def shared_data(trial: Trial, prepared: PreparedRun) -> SharedData:
    """Return the data of a trial. Trials with the same data options share it."""
    return _open_data(_DataRequest.from_run(trial.request.task, prepared))


@contextmanager
def explained_errors(trial: Trial) -> Iterator[None]:
    """Add the name of the trial to the message of an error."""
    try:
        yield
    except FedoptError as error:
        error.args = (_message(trial, error, str(error)),)
        raise
    except Exception as error:  # raised by the data or the model
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise RunError(_message(trial, RunError(), text)) from error


def _message(trial: Trial, error: FedoptError, text: str) -> str:
    path = "" if str(trial.path) in text else f" ({trial.path})"
    remedy = "; finished trials are kept, the same command continues" if isinstance(error, RunError) else ""
    return f"trial {trial.label}{path}: {text}{remedy}"


class _Same(NamedTuple):
    """A task object. It is equal to itself only."""

    task: Task

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.task is other.task

    def __hash__(self) -> int:
        return id(self.task)


@dataclass(frozen=True)
class _DataRequest:
    """The data of a problem. Requests of trials with the same data options are equal."""

    key: str
    task: object  # the name of a task, or the identity of a task object
    problem: Problem = field(compare=False)
    sample: int = field(compare=False)

    @classmethod
    def from_run(cls, task: str | Task, run: PreparedRun) -> _DataRequest:
        config = run.config
        options = [config.algorithm == "centralized", config.data, config.eval.sample]
        key = task if isinstance(task, str) else _Same(task)
        return cls(json.dumps(options, sort_keys=True), key, run.problem, config.eval.sample)


@lru_cache(maxsize=2)
def _open_data(request: _DataRequest) -> SharedData:
    return open_data(request.problem, request.sample)
