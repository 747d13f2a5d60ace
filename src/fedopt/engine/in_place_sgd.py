"""Client SGD in place: the numbers of `algorithms.fedopt` without a vector for every step.

The algorithm's text has the gradient as a vector, its negative, and a new x_i, each of which goes through
memory once. Where a client says that it does no more than that (`LocalSGD`), the steps are taken on one
copy of x instead, parameter by parameter: bit for bit the same. The dense layers of the paper's networks and
the rows of its bags of words go further: their gradient is added to the weights as it is computed, which
rounds once less or adds up in another order.
"""

from __future__ import annotations

from collections.abc import Callable

from fedopt.algorithms.base import ClientResult, LocalSGD, Vector
from fedopt.engine.client import ClientWork


def in_place(client: Callable[..., ClientResult]) -> Callable[..., ClientResult]:
    """What the engine runs for an algorithm's client."""
    return _descend if isinstance(client, LocalSGD) else client


def _descend(work: ClientWork, x: Vector) -> ClientResult:
    x_i = x.clone() if work.room is None else work.room[: len(x)].copy_(x)
    work.descend(x_i)
    return ClientResult((x_i.sub_(x),))  # Delta_i
