"""The contract of a federated algorithm: three pure functions on flat vectors.

The engine runs a round of any algorithm in the same way:

    cohort -> client(work, *sent) for each -> weighted mean of their results -> server(state, mean, round)

An algorithm file therefore holds only mathematics, in the paper's symbols: `x` is the model, `eta` the server
learning rate, `eta_l` the client learning rate, `delta` a model difference and `t` the round.

A client declares what the engine may rely on, as attributes of its class:

    coordinate_wise   it uses coordinate-wise operations only. The engine may run it on several clients at
                      once: a vector is then a stack (clients, d) with one row for each client, and `eta_l`
                      and `steps` are columns (clients, 1).
    sparse            a coordinate whose gradients are all zero keeps its value and changes no other one. The
                      engine may leave such coordinates out.

A subclass may compute something else, so it must repeat them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch

Vector = torch.Tensor  # (d,) float32: all trainable parameters of the model, one after the other
State = Any  # a NamedTuple of vectors with the model as its field `x`; a resumed run needs nothing else


class Round(NamedTuple):
    """What a client and the server know about the current round.

    Attributes:
        t: the round; counts from 0.
        eta_l: client learning rate of this round.
        eta: server learning rate of this round.
        cohort: |S|; for the server, the number of clients whose results were finite.
        population: N, the number of training clients.
    """

    t: int
    eta_l: float
    eta: float
    cohort: int
    population: int


class Work(Protocol):
    """One client in one round: its batches, its gradient, and the vectors it kept from earlier rounds.

    Examples:
        The client of an algorithm with K local steps:

        >>> def client(work, x):
        ...     x_i = x
        ...     for b in work.batches():
        ...         x_i = x_i - work.round.eta_l * work.gradient(x_i, b)
        ...     return fedopt.ClientResult((x_i - x,))

        The same with steps in place, which take less time and memory:

        >>> def client(work, x):
        ...     x_i = x
        ...     for b in work.batches():
        ...         x_i = work.descend(x_i, b, work.round.eta_l)
        ...     return fedopt.ClientResult((work.delta(x_i, x),))
    """

    @property
    def round(self) -> Round:
        """The round and its learning rates."""

    @property
    def kept(self) -> tuple[Vector, ...] | None:
        """The vectors of this client's last `ClientResult.keeps`; None in its first round."""

    def kept_or(self, *first: Vector) -> tuple[Vector, ...]:
        """Return the vectors that this client kept.

        Args:
            first: the vectors of its first round.

        Returns:
            The vectors of its last `ClientResult.keeps`, or `first`.
        """

    @property
    def steps(self) -> int:
        """The number of batches that `batches()` yields."""

    def batches(self) -> Iterator[Any]:
        """Yield the batches of the local work: E epochs over B_i, shuffled in each epoch, or K steps.

        Returns:
            Batches for `gradient`.
        """

    def gradient(self, x: Vector, batch: Any) -> Vector:
        """Return the gradient of f_i(x; b).

        Args:
            x: all trainable parameters as one vector.
            batch: a batch of `batches`.

        Returns:
            The gradient, a vector like `x`.
        """

    def descend(self, x_i: Vector, batch: Any, eta_l: float, add: Vector | None = None) -> Vector:
        """Take a step of SGD: return x_i - eta_l (g + add), where g is the gradient of f_i(x_i; b).

        It is faster than `gradient`, because the step is taken in place, parameter by parameter. Use only the
        returned vector afterwards: `descend` and `delta` empty the vector that `descend` returned last, if
        they are called with it. Vectors that the client has received or made stay as they are.

        Args:
            x_i: all trainable parameters as one vector.
            batch: a batch of `batches`.
            eta_l: the client learning rate.
            add: a vector that is added to the gradient.

        Returns:
            The next x_i.
        """

    def delta(self, x_i: Vector, x: Vector) -> Vector:
        """Return x_i - x. If `descend` returned x_i, it is empty afterwards, which saves a copy.

        Args:
            x_i: the result of the local steps.
            x: the vector that the client received.

        Returns:
            Delta_i.
        """

    def full_gradient(self, x: Vector) -> Vector:
        """Return the mean of the gradients of f_i(x; b) over all b in B_i.

        Args:
            x: all trainable parameters as one vector.

        Returns:
            The gradient, a vector like `x`.
        """


class ClientResult(NamedTuple):
    """The result of one client's local training.

    Attributes:
        returns: vectors for the server, which receives their means; Delta_i comes first.
        keeps: vectors that are stored for this client when the round is complete.
    """

    returns: tuple[Vector, ...]
    keeps: tuple[Vector, ...] = ()


def declares(client: Callable[..., ClientResult], name: str) -> bool:
    """Return whether a client itself, or its class itself, declares the attribute `name` as true."""
    own = name in vars(type(client)) or name in getattr(client, "__dict__", {})
    return own and bool(getattr(client, name))


class Algorithm(NamedTuple):
    """A federated algorithm: three pure functions, and the names of the vectors that are sent or stored.

    Attributes:
        init: x_0 -> state of the server, a NamedTuple of vectors with the field `x`.
        client: (work, *vectors sent) -> `ClientResult`.
        server: (state, means of the returned vectors, round) -> state.
        sends: fields of the state that every client of the round receives.
        returns: names of the vectors that clients return.
        keeps: names of the vectors that a client keeps for its next round.

    Examples:
        >>> class State(NamedTuple):
        ...     x: torch.Tensor
        >>> def client(work, x):
        ...     x_i = x
        ...     for b in work.batches():
        ...         x_i = x_i - work.round.eta_l * work.gradient(x_i, b)
        ...     return fedopt.ClientResult((x_i - x,))
        >>> def server(state, means, round):
        ...     return State(state.x + round.eta * means[0])
        >>> fedavg = fedopt.Algorithm(State, client, server)
        >>> fedopt.run("synthetic_lr", algorithm=fedavg, rounds=1, config={"client.steps": 1}).rounds
        1
    """

    init: Callable[[Vector], State]
    client: Callable[..., ClientResult]
    server: Callable[[State, tuple[Vector, ...], Round], State]
    sends: tuple[str, ...] = ("x",)
    returns: tuple[str, ...] = ("delta",)
    keeps: tuple[str, ...] = ()

    def sent(self, state: State) -> tuple[Vector, ...]:
        """Return the vectors of `state` that the clients receive."""
        return tuple(getattr(state, name) for name in self.sends)
