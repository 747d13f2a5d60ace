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

from torch import nn

from fedopt.algorithms import Algorithm, Optimizer, sgd
from fedopt.algorithms.fedopt import FedOptClient, FedOptServer
from fedopt.algorithms.fedprox import FedProxClient
from fedopt.engine.problem import Problem
from fedopt.models.capabilities import has_gradient_hooks, self_updating_layers


class FastPath(NamedTuple):
    """A faster computation. `condition` takes the algorithm and, on a client, the problem and the model."""

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


def _server_is_sgd(algorithm: Algorithm) -> bool:
    return bool(algorithm.server == FedOptServer(sgd()))


IN_PLACE_SGD = FastPath(
    "in-place client SGD",
    "The client is Algorithm 1's client with `sgd()`: x_i = x_i - eta_l g can then overwrite x_i.",
    _client_is_sgd,
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
FAST_PATHS = (IN_PLACE_SGD, SELF_UPDATING_LAYERS, CLIENT_ON_SPARSE_ROWS, SERVER_ON_SPARSE_ROWS)
