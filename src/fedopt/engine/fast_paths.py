"""The registry of fast paths: other ways to compute what the algorithm's own functions compute.

An algorithm is defined in `fedopt.algorithms`, and its functions are the reference. The engine asks this
registry whether it may replace a part of a round by a faster computation. Every entry states the condition
under which its result is exact. "Exact" means equal to the bit, or, where the entry states it, equal up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from fedopt.algorithms import Algorithm, Optimizer, Round, Vector, sgd
from fedopt.algorithms.adaalter import AdaAlterClient
from fedopt.algorithms.fedopt import FedOptClient, FedOptServer
from fedopt.algorithms.fedprox import FedProxClient
from fedopt.algorithms.lookahead import LookaheadClient
from fedopt.algorithms.scaffold import ScaffoldClient
from fedopt.engine.problem import Problem
from fedopt.models.capabilities import has_gradient_hooks, self_updating_layers


class FastPath(NamedTuple):
    """A faster computation. `condition` takes the algorithm and, in some cases, the problem and the model."""

    name: str
    exact_if: str
    condition: Callable[..., bool]

    def applies(self, *arguments: Any) -> bool:
        return self.name not in _disabled and self.condition(*arguments)


_disabled: set[str] = set()


@contextmanager
def disabled(*paths: FastPath) -> Iterator[None]:
    """Disable these fast paths in this process, for tests and measurements."""
    names = {path.name for path in paths} - _disabled
    _disabled.update(names)
    try:
        yield
    finally:
        _disabled.difference_update(names)


def _client_is_sgd(algorithm: Algorithm, problem: Problem, model: nn.Module) -> bool:
    return bool(algorithm.client == FedOptClient(sgd()))


def _client_is_scaffold(algorithm: Algorithm) -> bool:
    return type(algorithm.client) is ScaffoldClient


def _layers_can_update(algorithm: Algorithm, problem: Problem, model: nn.Module) -> bool:
    plain_sgd = _client_is_sgd(algorithm, problem, model)
    return plain_sgd and problem.penalty is None and bool(self_updating_layers(model))


def _client_is_sparse(algorithm: Algorithm, problem: Problem, model: nn.Module) -> bool:
    client = algorithm.client
    return (
        problem.touched is not None
        and problem.penalty is None
        and not has_gradient_hooks(model)
        and type(client) in (FedOptClient, FedProxClient)
        and _is_from_this_package(client.optimizer)  # type: ignore[attr-defined]
    )


def _is_from_this_package(optimizer: Optimizer) -> bool:
    """Return whether both functions of the optimizer are defined in `fedopt.algorithms`."""
    modules = [getattr(f, "__globals__", {}).get("__name__", "") for f in (optimizer.update, optimizer.init)]
    return all(module.startswith("fedopt.algorithms.") for module in modules)


def _client_is_coordinate_wise(algorithm: Algorithm) -> bool:
    client: Any = algorithm.client
    types = (FedOptClient, FedProxClient, ScaffoldClient, AdaAlterClient, LookaheadClient)
    if type(client) not in types:
        return False
    return not hasattr(client, "optimizer") or _is_from_this_package(client.optimizer)


class _IdleWork:
    """Two steps with gradients, and some with gradient and rate zero, for a vector of two numbers."""

    kept = None
    steps = 2

    def __init__(self, idle_steps: int) -> None:
        self._rate = torch.full((1, 1), 0.1)
        self.round = Round(0, self._rate, 1.0, 1, 1)  # type: ignore[arg-type]
        self._idle_steps = idle_steps

    def kept_or(self, *first: Vector) -> tuple[Vector, ...]:
        return first

    def batches(self) -> Iterator[Vector]:
        yield torch.tensor([[0.5, -2.0]])
        yield torch.tensor([[1.0, 0.25]])
        rate = self._rate.clone()
        for _ in range(self._idle_steps):
            self._rate.zero_()
            yield torch.zeros(1, 2)
        self._rate.copy_(rate)

    def gradient(self, x: Vector, batch: Vector) -> Vector:
        return batch

    def full_gradient(self, x: Vector) -> Vector:
        return torch.ones_like(x)


def _idle_steps_change_nothing(algorithm: Algorithm) -> bool:
    sent = [torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.25]])][: len(algorithm.sends)]
    one, other = (algorithm.client(_IdleWork(idle), *sent) for idle in (0, 2))
    pairs = zip(one.returns + one.keeps, other.returns + other.keeps, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def _server_is_sgd(algorithm: Algorithm) -> bool:
    return bool(algorithm.server == FedOptServer(sgd()))


IN_PLACE_SGD = FastPath(
    "in-place client SGD",
    "The client is Algorithm 1's client with `sgd()`: x_i = x_i - eta_l g can then overwrite x_i.",
    _client_is_sgd,
)
IN_PLACE_SCAFFOLD = FastPath(
    "in-place SCAFFOLD",
    "The client is SCAFFOLD's: x_i = x_i - eta_l (g - c_i + c) can then overwrite x_i.",
    _client_is_scaffold,
)
SELF_UPDATING_LAYERS = FastPath(
    "layers that update themselves",
    "In-place client SGD applies, the objective has no penalty, the model declares `each_layer_once`, and "
    "its parameters are trainable and have no hooks. The result is equal up to rounding.",
    _layers_can_update,
)
CLIENT_ON_SPARSE_ROWS = FastPath(
    "client on sparse rows",
    "The task names the rows of the model that a client's data touches. The gradient of all other rows is "
    "zero, because there is no penalty and no gradient hook. The client is that of Algorithm 1 or FedProx, "
    "and its optimizer, one of `fedopt.algorithms`, is coordinate-wise and leaves x unchanged where the "
    "gradient is always zero.",
    _client_is_sparse,
)
SERVER_ON_SPARSE_ROWS = FastPath(
    "server on sparse rows",
    "The clients trained sparse rows, and the server is Algorithm 1's server with `sgd()`: "
    "x_{t+1} = x_t + eta Delta_t leaves x unchanged where Delta_t is zero.",
    _server_is_sgd,
)
STACKED_CLIENTS = FastPath(
    "stacked clients",
    "The client is one of this package with one of its optimizers. It uses coordinate-wise operations only, "
    "so it computes the result of each client of a stack. The result is equal up to rounding.",
    _client_is_coordinate_wise,
)
UNEQUAL_STEPS = FastPath(
    "stacked clients with different numbers of steps",
    "Stacked clients apply, and a step with gradient and rate zero changes no result of the client. The "
    "condition runs the client with and without such steps and compares the results.",
    _idle_steps_change_nothing,
)
FAST_PATHS = (
    IN_PLACE_SGD,
    IN_PLACE_SCAFFOLD,
    SELF_UPDATING_LAYERS,
    CLIENT_ON_SPARSE_ROWS,
    SERVER_ON_SPARSE_ROWS,
    STACKED_CLIENTS,
    UNEQUAL_STEPS,
)
