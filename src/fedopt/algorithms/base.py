"""What a federated algorithm is: three pure functions on flat vectors.

The engine runs a round of any algorithm in the same way:

    cohort -> client(work, *sent) for each -> weighted mean of what they return -> server(state, mean, round)

so an algorithm file holds mathematics only, in the paper's symbols: `x` the model, `eta` the server
learning rate, `eta_l` the clients', `delta` a model difference, `t` the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

Vector = torch.Tensor  # (d,) float32: all trainable parameters of the model, one after the other
State = Any  # a NamedTuple of vectors with the model as its field `x`; it is all that a resumed run needs


class Round(NamedTuple):
    """What a client and the server know about the round they are in."""

    t: int  # counts from 0
    eta_l: float  # this round's client learning rate
    eta: float  # this round's server learning rate
    cohort: int  # |S|; for the server, the clients whose results were finite
    population: int  # N, the training clients


class Work(Protocol):
    """What a client has: its batches, its gradient, and what it kept from the last time it was seen."""

    @property
    def round(self) -> Round: ...

    @property
    def kept(self) -> tuple[Vector, ...] | None:
        """The vectors that this client's last `ClientResult.keeps` held; None the first time."""

    @property
    def steps(self) -> int:
        """How many batches `batches()` will yield."""

    def batches(self) -> Iterator[Any]:
        """The local work: E epochs over the client's batches B_i, reshuffled each epoch, or K steps."""

    def gradient(self, x: Vector, batch: Any) -> Vector:
        """The gradient of f_i(x; b)."""

    def full_gradient(self, x: Vector) -> Vector:
        """The mean of the gradients of f_i(x; b) over all b in B_i, at one point."""


class ClientResult(NamedTuple):
    """What a client hands back."""

    returns: tuple[Vector, ...]  # sent to the server, which sees their means over the cohort; delta_i first
    keeps: tuple[Vector, ...] = ()  # stays with the client, committed with its round


@dataclass(frozen=True)
class LocalSGD:
    """A client that descends from x at the rate eta_l, batch after batch, and returns x_i - x.

    Wrapped in this, the function says so, and the engine may do the same in place (`engine.descent`).
    """

    client: Callable[[Work, Vector], ClientResult]

    def __call__(self, work: Work, x: Vector) -> ClientResult:
        return self.client(work, x)


class Algorithm(NamedTuple):
    """A federated algorithm. `sends`, `returns` and `keeps` name the vectors that travel or stay."""

    init: Callable[[Vector], State]  # x_0 -> the server's state
    client: Callable[..., ClientResult]  # (work, *vectors sent) -> result
    server: Callable[
        [State, tuple[Vector, ...], Round], State
    ]  # (state, means of what returned, round) -> state
    sends: tuple[str, ...] = ("x",)  # fields of the state that every client of the round receives
    returns: tuple[str, ...] = ("delta",)
    keeps: tuple[str, ...] = ()
    # A client leaves every coordinate whose gradient is zero as it was sent, and works on each alone: then it
    # may be given the coordinates that its data touches, and no others.
    still: bool = False
    # The server works on each coordinate alone and leaves it, in all of its state, where the means are zero:
    # then it may be given the coordinates that some client touched, and no others.
    rests: bool = False

    def sent(self, state: State) -> tuple[Vector, ...]:
        """The vectors of `state` that travel to the clients."""
        return tuple(getattr(state, name) for name in self.sends)
