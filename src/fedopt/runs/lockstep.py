"""Execute several runs together, one round of each at a time.

The clients of all runs are trained by one call of the executor. Everything else is as in `execute`: each run
has its own loop, metrics and run directory, and may diverge or end on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedopt.engine.executors.base import BlockResult, RoundJobs
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.loop import Loop, Step
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.worker import NotStackable
from fedopt.engine.torch_state import single_thread
from fedopt.errors import Diverged
from fedopt.files import Log
from fedopt.runs.execute import training
from fedopt.runs.interrupts import deferred_interrupts
from fedopt.runs.loggers import RunLogger
from fedopt.runs.open_run import OpenedRun, open_run
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.result import RunResult
from fedopt.runs.shared_data import SharedData

CHECKPOINT_SECONDS = 2.0  # least time between checkpoints of a run: its rounds may take milliseconds


class StackedRun(NamedTuple):
    """A run that is executed together with others, up to round `until`."""

    prepared: PreparedRun
    out: Path
    command: str
    until: int
    tensorboard: bool = False
    loggers: Sequence[RunLogger] = ()


@dataclass(eq=False)
class _Member:
    """A run that is still trained. Its `resources` are closed when it ends."""

    run: OpenedRun
    loop: Loop[RunResult]
    resources: ExitStack

    def advance(self, blocks: Iterable[BlockResult] | None) -> RoundJobs | None:
        """Continue with the trained clients. Return those of the next round, or None if the run has ended."""
        try:
            return next(self.loop) if blocks is None else self.loop.send(blocks)
        except StopIteration:
            pass
        except Diverged as error:
            self.run.recorder.record_end("diverged", str(error))
        self.resources.close()
        return None


def execute_together(
    runs: Sequence[StackedRun],
    executor: Vectorised,
    data: SharedData,
    on_step: Callable[[Step], None],
    log: Log,
) -> None:
    """Start or resume runs and train each up to its round `until`. Diverged runs are recorded as such.

    The runs have the same configuration except for `seed`, `client.lr`, `variant` and the keys of [server].
    Raise `NotStackable` if their clients cannot be trained together. Call `on_step` after every round of
    every run.
    """
    with ExitStack() as resources, single_thread():
        members: list[_Member] = []
        for run in runs:
            own = resources.enter_context(ExitStack())
            opened = own.enter_context(
                open_run(
                    run.prepared,
                    out=run.out,
                    command=run.command,
                    log=log,
                    warn=log,
                    tensorboard=run.tensorboard,
                    data=data,
                    loggers=run.loggers,
                    checkpoint_seconds=CHECKPOINT_SECONDS,
                )
            )
            if not opened.recorder.is_finished:
                opened.restart()
                until = min(run.until, opened.recorder.config.rounds)
                members.append(_Member(opened, training(opened, executor, until, on_step, log), own))
        _load(executor, [member.run for member in members], data)
        jobs = {member: work for member in members if (work := member.advance(None))}
        while jobs:
            results = executor.train_together(list(jobs.values()))
            with deferred_interrupts():  # all runs finish this round, or none
                pairs = list(zip(jobs, results, strict=True))
                jobs = {member: work for member, blocks in pairs if (work := member.advance(blocks))}


def _load(executor: Vectorised, runs: Sequence[OpenedRun], data: SharedData) -> None:
    """Load the problem that all runs share."""
    problems = [run.recorder.problem for run in runs]
    if not problems:
        return
    executor.load(problems[0], data.federation, data.sample)
    if executor.fallback_reason:
        raise NotStackable(executor.fallback_reason)
    if any(_fixed_checksums(problem) != _fixed_checksums(problems[0]) for problem in problems):
        raise NotStackable("the frozen parameters or buffers of the trials differ")


def _fixed_checksums(problem: Problem) -> dict[str, str]:
    return {} if problem.fixed is None else problem.fixed.checksums()
