"""Stacks: trials that differ only in rates, seeds and servers, and are trained together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.stacked.worker import NotStackable
from fedopt.files import Log
from fedopt.runs.lockstep import StackedRun, execute_together
from fedopt.runs.loggers import create_loggers
from fedopt.tasks import TASKS
from fedopt.tuning.trials import Trial, WorkItem
from fedopt.tuning.worker import count_round, explained_errors, run_item, shared_data

Stack = tuple[WorkItem, ...]

STACKING = ("vectorised", "compiled")  # executors that train the clients of several trials together
MAX_TRIALS = 64  # of a stack; each keeps two files open


def form_stacks(items: Sequence[WorkItem], workers: int) -> list[Stack]:
    """Divide items into stacks, at least one per worker if there are enough items.

    The result of a trial does not depend on the stack it is in. Without an executor that trains clients
    together, every item is a stack of its own.
    """
    if items and items[0].trial.request.executor.name not in STACKING:
        return [(item,) for item in items]
    groups: dict[str, list[WorkItem]] = {}
    for item in items:
        groups.setdefault(_common_configuration(item.trial), []).append(item)
    stacks: list[Stack] = []
    for group in groups.values():
        count = max(min(workers, len(group)), -(-len(group) // MAX_TRIALS))
        size = -(-len(group) // count)
        stacks += [tuple(group[start : start + size]) for start in range(0, len(group), size)]
    return stacks


def _common_configuration(trial: Trial) -> str:
    """Return what the trials of a stack have in common, as text.

    A stack has one module. The module of a user may draw values at random that are neither parameters nor
    buffers, so its trials also have the seed in common.
    """
    document = trial.config.document()
    for key in ("server", "variant"):
        document.pop(key, None)
    if trial.request.task_name in TASKS:
        del document["seed"]
    document["client"] = {key: value for key, value in document["client"].items() if key != "lr"}
    return json.dumps(document, sort_keys=True)


@contextmanager
def trial_executor(trial: Trial) -> Iterator[Executor]:
    """Open the executor on which a trial runs in one process."""
    options = trial.request.executor
    with open_executor(ExecutorOptions("serial") if options.name is None else options) as executor:
        yield executor


def run_stack(stack: Stack, executor: Executor, on_round: Callable[[], None], log: Log) -> None:
    """Run the items of a stack together, or one after the other if that is not possible."""
    if len(stack) > 1 and isinstance(executor, Vectorised):
        reason = _run_together(stack, executor, on_round, log)
        if not reason:
            return
        log(f"trials run one after the other: {reason}")
    for item in stack:
        run_item(item, executor, on_round)


def _run_together(stack: Stack, executor: Vectorised, on_round: Callable[[], None], log: Log) -> str:
    """Run the items together. Return the reason if that is not possible."""
    first = stack[0].trial
    with explained_errors(first):
        runs = []
        for item in stack:
            request, trial = item.trial.request, item.trial
            loggers = create_loggers(request.log)
            prepared = request.prepare()
            runs.append(
                StackedRun(prepared, trial.path, trial.command, item.until, request.tensorboard, loggers)
            )
        data = shared_data(first, runs[0].prepared)
        try:
            execute_together(runs, executor, data, partial(count_round, on_round), log)
        except NotStackable as reason:
            return str(reason)
    return ""
