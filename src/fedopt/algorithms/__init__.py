"""The registry of algorithms: names, allowed optimizers, options and builders.

The keyword arguments of a factory are its configuration: `OPTIMIZERS["adam"]` takes beta1, beta2, tau, ...,
which are the keys `server.beta1`, `server.beta2`, `server.tau` of a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedopt.algorithms.adaalter import adaalter
from fedopt.algorithms.adaptive import adabound, adagrad, adam, amsgrad, yogi
from fedopt.algorithms.base import Algorithm, ClientResult, Round, State, Vector, Work
from fedopt.algorithms.centralized import centralized
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.fedprox import fedprox
from fedopt.algorithms.lookahead import lookahead
from fedopt.algorithms.optimizers import Optimizer, sgd, sgdm
from fedopt.algorithms.scaffold import scaffold

__all__ = [
    "ALGORITHMS",
    "OPTIMIZERS",
    "VARIANTS",
    "Algorithm",
    "AlgorithmEntry",
    "ClientResult",
    "Optimizer",
    "Round",
    "State",
    "Vector",
    "Work",
    "adaalter",
    "adabound",
    "adagrad",
    "adam",
    "amsgrad",
    "build",
    "centralized",
    "fedopt",
    "fedprox",
    "keywords",
    "lookahead",
    "scaffold",
    "sgd",
    "sgdm",
    "yogi",
]

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": sgd,
    "sgdm": sgdm,
    "adagrad": adagrad,
    "adam": adam,
    "yogi": yogi,
    "amsgrad": amsgrad,
    "adabound": adabound,
}

# Adam and Yogi as in Keras.
_KERAS = {"bias_correction": True, "first_step": 2, "initial_accumulator": 0.0}

# `variant` changes the defaults of the server optimizer. "as_printed" is the paper's text, which is the
# default of every factory; "as_run" is the authors' code of 2020-09. docs/deviations.md gives the reasons.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "as_printed": {},
    "as_run": {
        "sgdm": {"fold_rate": True},
        "adagrad": {"initial_accumulator": 0.0},
        "adam": _KERAS,
        "yogi": _KERAS,
    },
}

_ANY = tuple(OPTIMIZERS)
_ADAPTIVE = ("adam", "adagrad", "yogi")  # optimizers with one accumulator v, which clients can share


class AlgorithmEntry(NamedTuple):
    """An algorithm in the registry."""

    what: str
    paper: str  # the place in the paper
    build: Callable[..., Algorithm]  # (client optimizer, server optimizer, **options)
    # allowed client optimizers, the default first; () if the algorithm has its own rule
    clients: tuple[str, ...] = ("sgd",)
    servers: tuple[str, ...] = ("sgd",)
    options: Mapping[str, Callable[..., Any]] = {}  # side -> factory whose keywords are its options


ALGORITHMS: dict[str, AlgorithmEntry] = {
    "fedavg": AlgorithmEntry(
        "SGD on clients, averaging on the server with rate eta", "Algorithms 1, 3", fedopt
    ),
    "fedavgm": AlgorithmEntry("FedAvg with server momentum", "Algorithm 1", fedopt, servers=("sgdm",)),
    "fedadagrad": AlgorithmEntry("Adagrad on the server", "Algorithms 2, 5", fedopt, servers=("adagrad",)),
    "fedadam": AlgorithmEntry("Adam on the server", "Algorithms 2, 5", fedopt, servers=("adam",)),
    "fedyogi": AlgorithmEntry("Yogi on the server", "Algorithms 2, 5", fedopt, servers=("yogi",)),
    "scaffold": AlgorithmEntry(
        "control variates against client drift; clients keep state",
        "Algorithm 6",
        lambda client, server, **options: scaffold(**options),
        options={"client": scaffold},
    ),
    "fedopt": AlgorithmEntry("any client with any server optimizer", "Algorithms 1, 4", fedopt, _ANY, _ANY),
    "fedprox": AlgorithmEntry(
        "FedOpt with a proximal term on the client", "Related work", fedprox, _ANY, _ANY, {"client": fedprox}
    ),
    "adaalter": AlgorithmEntry(
        "clients share an Adagrad-like accumulator",
        "Appendix, client adaptivity",
        lambda client, server, **options: adaalter(**options),
        clients=(),
        options={"client": adaalter},
    ),
    "lookahead": AlgorithmEntry(
        "adaptive clients, SGD on the server",
        "Appendix, client adaptivity",
        lambda client, server, **options: lookahead(client, **options),
        clients=_ADAPTIVE,
        options={"client": lookahead},
    ),
    "centralized": AlgorithmEntry(
        "one optimizer on the shuffled union of all clients",
        "Appendix, learning-rate decay",
        lambda client, server: centralized(client),
        clients=_ANY,
    ),
}


def keywords(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only arguments of a factory with their defaults.

    >>> keywords(sgdm)
    {'momentum': 0.9, 'fold_rate': False}
    """
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


OptimizerChoice = tuple[str, Mapping[str, Any]] | None  # name and keyword arguments


def build(
    name: str, client: OptimizerChoice, server: OptimizerChoice, options: Mapping[str, Any]
) -> Algorithm:
    """Build the algorithm `name` with the chosen optimizers; None if the algorithm has its own rule."""
    optimizers = [OPTIMIZERS[choice[0]](**choice[1]) if choice else None for choice in (client, server)]
    return ALGORITHMS[name].build(*optimizers, **options)
