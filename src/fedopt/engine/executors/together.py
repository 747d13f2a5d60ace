"""Rounds of several runs whose clients are trained together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeGuard

from fedopt.engine.executors.base import BlockResult, Executor, Kept
from fedopt.engine.round import RoundJobs


class RunRound(NamedTuple):
    """The clients of one run in its current round."""

    seed: int  # of the run
    work: RoundJobs
    kept: Kept


class StackingExecutor(Executor, Protocol):
    """An executor that can train the clients of several runs together.

    The runs have the same task, local work and client algorithm. They may differ in their seeds, rates and
    servers. The results of a run do not depend on the other runs.
    """

    def train_together(self, rounds: Sequence[RunRound]) -> list[list[BlockResult]]:
        """Train the clients of all runs. Return the blocks of each run, as `train` would yield them.

        Raise `NotStackable` if the clients cannot be trained together.
        """


def stacks_runs(executor: Executor) -> TypeGuard[StackingExecutor]:
    """Return whether an executor can train the clients of several runs together."""
    return hasattr(executor, "train_together")
