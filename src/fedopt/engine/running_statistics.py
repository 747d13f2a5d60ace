"""Running statistics of batch normalisation in training: `buffers = average` and `buffers = local`.

`average`: clients receive the server's statistics with the model and update them in training. The new
statistics of the server are the mean over the cohort, with the weights and in the order of the updates.

`local` (FedBN): a client starts from the statistics that it had after its last round, or from those of the
initial model. They stay with the client. The mean over the cohort is used for evaluation only.

Both are wrappers around any algorithm. The statistics are one more vector of its state, which checkpoints,
client state and executors treat like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedopt.algorithms.base import Algorithm, ClientResult, Round, State, Vector

NAME = "running_statistics"  # of the vector
POLICIES = ("average", "local")


class TrackedState(NamedTuple):
    """The state of an algorithm, and the running statistics with which its model is evaluated."""

    algorithm: State
    running_statistics: Vector

    def __getattr__(self, name: str) -> Any:
        """Return a field of the algorithm's state, such as x."""
        return getattr(self[0], name)


def running_statistics(state: State) -> Vector | None:
    """Return the running statistics of a state, if it has any."""
    return state.running_statistics if isinstance(state, TrackedState) else None


def track_statistics(policy: str, build: Callable[[], Algorithm]) -> Algorithm:
    """Build an algorithm that also trains running statistics. Its `init` leaves them empty."""
    inner = build()
    is_local = policy == "local"
    return Algorithm(
        init=_Init(inner),
        client=_LocalClient(inner) if is_local else _AverageClient(inner),
        server=_Server(inner),
        sends=inner.sends if is_local else (*inner.sends, NAME),
        returns=(*inner.returns, NAME),
        keeps=(*inner.keeps, NAME) if is_local else inner.keeps,
    )


@dataclass(frozen=True)
class _Init:
    inner: Algorithm

    def __call__(self, x: Vector) -> TrackedState:
        return TrackedState(self.inner.init(x), torch.zeros(0))


@dataclass(frozen=True)
class _AverageClient:
    inner: Algorithm

    def __call__(self, work: Any, *sent: Vector) -> ClientResult:
        work.write_statistics(sent[-1])
        result = self.inner.client(work, *sent[:-1])
        return ClientResult((*result.returns, work.read_statistics()), result.keeps)


@dataclass(frozen=True)
class _LocalClient:
    inner: Algorithm

    def __call__(self, work: Any, *sent: Vector) -> ClientResult:
        work.write_statistics(None if work.kept is None else work.kept[-1])
        if work.kept is not None:
            work.kept = work.kept[:-1] if self.inner.keeps else None
        result = self.inner.client(work, *sent)
        statistics = work.read_statistics()
        return ClientResult((*result.returns, statistics), (*result.keeps, statistics))


@dataclass(frozen=True)
class _Server:
    inner: Algorithm

    def __call__(self, state: TrackedState, means: tuple[Vector, ...], round: Round) -> TrackedState:
        return TrackedState(self.inner.server(state.algorithm, means[:-1], round), means[-1])
