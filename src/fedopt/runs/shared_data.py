"""Data that several runs in one process share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedopt.data import Arrays, Federation
from fedopt.data.distribution import summarize_clients
from fedopt.engine.evaluate import fixed_sample, sample_size
from fedopt.engine.problem import Problem


@dataclass(frozen=True)
class SharedData:
    """An opened federation and the test examples that evaluations during training use.

    Runs may share it if they have the same task, data options and `eval.sample`. It does not depend on the
    seed or the algorithm, except that centralized training has a federation of its own.
    """

    federation: Federation
    examples: int  # size of the evaluation sample

    @cached_property
    def clients(self) -> dict[str, Any]:
        """Sizes and labels of the training clients."""
        return summarize_clients(self.federation.train)

    @cached_property
    def sample(self) -> Arrays:
        return fixed_sample(self.federation.test, self.examples)


def open_data(problem: Problem, examples: int) -> SharedData:
    """Open the federation of a problem; evaluations use `examples` test examples (0: all of them)."""
    federation = problem.federation()
    return SharedData(federation, sample_size(federation.test, examples))
