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
class Still:
    """A function that works on each coordinate alone, and leaves it as it is where nothing moves it.

    Wrapped in this, it says so, and the engine may give it the coordinates that are touched, and no others:
    a client those on which its gradient can be other than zero; a server, which must then leave all of its
    state where the means are zero, those of the cohort. An optimizer's update leaves x where `delta` was
    always zero. The word goes with the function: another one in its place has not given it.
    """

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@dataclass(frozen=True)
class LocalSGD(Still):
    """A client that descends from x at the rate eta_l, batch after batch, and returns x_i - x.

    The engine may do the same in place (`engine.descent`).
    """


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

    def sent(self, state: State) -> tuple[Vector, ...]:
        """The vectors of `state` that travel to the clients."""
        return tuple(getattr(state, name) for name in self.sends)
