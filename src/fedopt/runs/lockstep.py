"""Execute several runs together, one round of each at a time.

The clients of all runs are trained by one call of the executor. Everything else is as in `execute`: each run
has its own server, position, metrics and run directory, and may diverge or end on its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedopt.engine.executors.together import RunRound, StackingExecutor
from fedopt.engine.loop import Step, check_progress, first_step, next_jobs, next_step
from fedopt.engine.problem import Problem
from fedopt.engine.round import TrainingSetup
from fedopt.engine.stacked.worker import NotStackable
from fedopt.engine.torch_state import single_thread
from fedopt.errors import Diverged
from fedopt.files import Log
from fedopt.runs import stack_checkpoint
from fedopt.runs.execute import finish_run
from fedopt.runs.interrupts import deferred_interrupts
from fedopt.runs.loggers import RunLogger
from fedopt.runs.open_run import OpenedRun, open_run
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.shared_data import SharedData
from fedopt.runs.stack_checkpoint import RunCheckpoint

CHECKPOINT_SECONDS = 2.0  # least time between two checkpoints of the stack


class StackedRun(NamedTuple):
    """A run that is executed together with others, up to round `until`."""

    prepared: PreparedRun
    out: Path
    command: str
    until: int
    tensorboard: bool = False
    loggers: Sequence[RunLogger] = ()


def execute_together(
    runs: Sequence[StackedRun],
    executor: StackingExecutor,
    data: SharedData,
    checkpoint: Path,
    on_step: Callable[[Step], None],
    log: Log,
) -> None:
    """Start or resume runs and train each up to its round `until`. Diverged runs are recorded as such.

    The runs have the same configuration except for `seed`, `client.lr`, `variant` and the keys of [server].
    Raise `NotStackable` if their clients cannot be trained together.

    `checkpoint` is the file of the checkpoints of all runs. It exists only while they are trained: a finished
    run writes a checkpoint of its own, and so does every run if this function is interrupted. Call `on_step`
    after every round of every run.
    """
    stack_checkpoint.unpack(checkpoint, log)
    with ExitStack() as resources, single_thread():
        stack = _Stack(executor, checkpoint, on_step, log)
        for run in runs:
            own = resources.enter_context(ExitStack())  # closed when the run ends
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
                )
            )
            if not opened.recorder.is_finished:
                stack.add(opened, run.until, own)
        stack.train()
    checkpoint.unlink(missing_ok=True)


@dataclass
class _Member:
    """A run of the stack that is still trained."""

    run: OpenedRun
    setup: TrainingSetup
    until: int
    began: float
    resources: ExitStack


class _Stack:
    def __init__(
        self, executor: StackingExecutor, checkpoint: Path, on_step: Callable[[Step], None], log: Log
    ) -> None:
        self._executor, self._checkpoint, self._on_step, self._log = executor, checkpoint, on_step, log
        self._members: list[_Member] = []
        self._problem: Problem | None = None  # of the first run
        self._saved = time.monotonic()

    def add(self, run: OpenedRun, until: int, resources: ExitStack) -> None:
        """Add a run, unless it has reached its last round. Its `resources` are closed when it ends."""
        recorder = run.recorder
        run.restart()
        self._load(run)
        until = min(until, recorder.config.rounds)
        began = time.monotonic() - recorder.seconds
        member = _Member(run, run.setup(self._executor), until, began, resources)
        self._members.append(member)
        # One checkpoint holds all runs. Vectors that clients keep are files of the run, as is its checkpoint.
        recorder.saves_periodically = bool(member.setup.algorithm.keeps)
        if recorder.position.round == 0:
            self._record(member, first_step(member.setup, run.plan, recorder.position))
        self._end_if_complete(member)

    def _load(self, run: OpenedRun) -> None:
        """Load the problem that all runs share."""
        problem = run.recorder.problem
        if self._problem is None:
            self._problem = problem
            self._executor.load(problem, run.data.federation, run.data.sample)
            if self._executor.fallback_reason:
                raise NotStackable(self._executor.fallback_reason)
        elif _fixed_checksums(problem) != _fixed_checksums(self._problem):
            raise NotStackable("the frozen parameters or buffers of the trials differ")

    def train(self) -> None:
        """Run rounds until all runs have ended."""
        while self._members:
            works = [next_jobs(m.setup, m.run.plan, m.run.recorder.position) for m in self._members]
            rounds = [
                RunRound(m.setup.seed, work, m.setup.table.read)
                for m, work in zip(self._members, works, strict=True)
            ]
            results = self._executor.train_together(rounds)
            with deferred_interrupts():  # all runs finish this round, or none
                for member, work, blocks in zip(list(self._members), works, results, strict=True):
                    position = member.run.recorder.position
                    self._record(member, next_step(member.setup, member.run.plan, position, work, blocks))
            self._write_checkpoint()

    def _record(self, member: _Member, step: Step) -> None:
        member.run.recorder.add(step, time.monotonic() - member.began)
        self._on_step(step)
        try:
            check_progress(member.run.plan, step)
        except Diverged as error:
            member.run.recorder.record_end("diverged", str(error))
            self._remove(member)
            return
        if step.report is not None:
            self._end_if_complete(member)

    def _end_if_complete(self, member: _Member) -> None:
        """Record the end of a run after its last round."""
        recorder = member.run.recorder
        if recorder.has_stopped_improving or recorder.position.round >= recorder.config.rounds:
            recorder.checkpoint()
            finish_run(member.run, self._executor, member.began, self._log)
        elif recorder.position.round >= member.until:
            recorder.pause("pruned")
        else:
            return
        self._remove(member)

    def _remove(self, member: _Member) -> None:
        self._members.remove(member)
        member.resources.close()

    def _write_checkpoint(self) -> None:
        """Write one checkpoint for all runs, if it is due."""
        if time.monotonic() - self._saved < CHECKPOINT_SECONDS:
            return
        parts = []
        for recorder in (member.run.recorder for member in self._members):
            if recorder.directory is not None and not recorder.saves_periodically:
                checkpoint = recorder.directory.prepare_checkpoint(recorder.position, recorder.seconds)
                keep = recorder.config.checkpoint.keep
                parts.append(RunCheckpoint(recorder.directory.path, checkpoint, keep))
        if parts:
            stack_checkpoint.write(self._checkpoint, parts)
        self._saved = time.monotonic()


def _fixed_checksums(problem: Problem) -> dict[str, str]:
    return {} if problem.fixed is None else problem.fixed.checksums()
