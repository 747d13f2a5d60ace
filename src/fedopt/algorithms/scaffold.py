"""SCAFFOLD on batched data, as in the paper's appendix (Karimireddy et al. 2019).

The printed line is c_i+ = c_i - c + (x_i - x) / (E |B_i| eta_l). Its sign must be x - x_i, because after one
full-batch step with option II, c_i+ equals the gradient for any c and c_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from fedopt.algorithms.base import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms.optimizers import step


class ScaffoldState(NamedTuple):
    """x_t and c_t."""

    x: Vector
    c: Vector  # control variate of the server, initially zero


@dataclass(frozen=True)
class ScaffoldClient:
    """A client that corrects its gradients by c - c_i. It keeps c_i."""

    option: Literal["I", "II"]
    coordinate_wise: ClassVar[bool] = True

    def __call__(self, work: Work, x: Vector, c: Vector) -> ClientResult:
        eta_l = work.round.eta_l
        (c_i,) = work.kept_or(c)
        correction = c - c_i  # exactly zero in a client's first round
        x_i = x
        for b in work.batches():  # for e = 1..E, for b in B_i
            x_i = work.descend(x_i, b, eta_l, add=correction)  # x_i = x_i - eta_l (g_i - c_i + c)
        if self.option == "I":
            c_plus = work.full_gradient(x)
        else:
            c_plus = c_i - c + (x - x_i) / (work.steps * eta_l)  # work.steps = E |B_i|
        # Delta x_i, Delta c_i; c_i = c_i+
        return ClientResult((work.delta(x_i, x), c_plus - c_i), keeps=(c_plus,))


def scaffold(*, option: Literal["I", "II"] = "II") -> Algorithm:
    """Build SCAFFOLD.

    A client keeps c_i. In the client's first round c_i is c, so a run that samples no client twice takes
    the steps of FedAvg.

    Args:
        option: how c_i+ is computed: "II" from the model difference, "I" as the gradient at x.

    Returns:
        The algorithm. Its state is x and c.

    Examples:
        >>> scaffold = fedopt.algorithms.scaffold()
        >>> scaffold.sends, scaffold.returns, scaffold.keeps
        (('x', 'c'), ('delta_x', 'delta_c'), ('c_i',))
    """

    def init(x: Vector) -> ScaffoldState:
        return ScaffoldState(x, torch.zeros_like(x))

    def server(state: ScaffoldState, mean: tuple[Vector, ...], round: Round) -> ScaffoldState:
        delta_x, delta_c = mean
        x = step(state.x, delta_x, round.eta)  # x_{t+1} = x_t + eta Delta x
        c = state.c + (round.cohort / round.population) * delta_c  # c = c + |S|/N Delta c
        return ScaffoldState(x, c)

    return Algorithm(
        init,
        ScaffoldClient(option),
        server,
        sends=("x", "c"),
        returns=("delta_x", "delta_c"),
        keeps=("c_i",),
    )
