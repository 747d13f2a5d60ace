"""Lookahead (Zhang et al. 2019) in federated form: an adaptive CLIENTOPT, SGD on the server.

With `state="reset"` clients start a new optimizer in every round, which is FedOpt. With `state="average"`
clients start from the server's accumulator v and send theirs back, and the server averages them. This doubles
the transfer in both directions. The first moment m starts at zero, because it is a direction on the data of
another client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedopt.algorithms.base import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.optimizers import Optimizer, apply_update, is_coordinate_wise, sgd, step


class LookaheadState(NamedTuple):
    """x_t and the accumulator that clients share."""

    x: Vector
    v: Vector  # the average of the clients' accumulators


@dataclass(frozen=True)
class LookaheadClient:
    """A client whose optimizer starts from the server's accumulator v. It sends its own back."""

    optimizer: Optimizer  # CLIENTOPT

    def __call__(self, work: Work, x: Vector, v: Vector) -> ClientResult:
        x_i, s = x, self.optimizer.init(x)._replace(v=v)
        for k, b in enumerate(work.batches()):
            g = work.gradient(x_i, b)
            x_i, s = apply_update(self.optimizer, x_i, -g, work.round.eta_l, k, s)
        return ClientResult((x_i - x, s.v))

    @property
    def coordinate_wise(self) -> bool:
        return is_coordinate_wise(self.optimizer)


def lookahead(client: Optimizer, *, state: Literal["reset", "average"] = "reset") -> Algorithm:
    """Build Lookahead: x_{t+1} = x_t + eta (mean of the clients' fast weights - x_t).

    Args:
        client: CLIENTOPT with an accumulator v.
        state: whether clients "reset" their accumulators or the server takes their "average".

    Returns:
        The algorithm. Its state is x, and v with state="average".

    Examples:
        >>> from fedopt import algorithms
        >>> algorithms.lookahead(algorithms.adam(), state="average").sends
        ('x', 'v')
    """
    if state == "reset":
        return fedopt(client, sgd())

    def init(x: Vector) -> LookaheadState:
        return LookaheadState(x, client.init(x).v)

    def server(state: LookaheadState, mean: tuple[Vector, ...], round: Round) -> LookaheadState:
        delta, v = mean
        return LookaheadState(step(state.x, delta, round.eta), v)

    return Algorithm(init, LookaheadClient(client), server, sends=("x", "v"), returns=("delta", "v"))
