"""The registry of algorithms: names, the optimizers each admits, its options, and how it is built.

A factory's keyword arguments are its configuration: `OPTIMIZERS["adam"]` takes beta1, beta2, tau, ...,
and those are the keys `server.beta1`, `server.beta2`, `server.tau` of a run.
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
    "ClientResult",
    "Entry",
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

# What `variant` changes: the server optimizer's defaults. "as_printed" is every factory's own default,
# the paper's text; "as_run" is the authors' code of 2020-09. docs/deviations.md has the reasons.
_KERAS = {"bias_correction": True, "first_step": 2, "initial_accumulator": 0.0}
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
_ADAPTIVE = ("adam", "adagrad", "yogi")  # those with one accumulator v, which clients can share


class Entry(NamedTuple):
    """An algorithm as a user meets it."""

    what: str
    paper: str  # where it stands in the paper
    build: Callable[..., Algorithm]  # (client optimizer, server optimizer, **options)
    # the client optimizers it admits, the default first; () for a rule of its own
    clients: tuple[str, ...] = ("sgd",)
    servers: tuple[str, ...] = ("sgd",)
    options: Mapping[str, Callable[..., Any]] = {}  # side -> the factory whose own keywords are options there


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry("SGD on clients, averaging on the server with rate eta", "Algorithms 1, 3", fedopt),
    "fedavgm": Entry("FedAvg with server momentum", "Algorithm 1", fedopt, servers=("sgdm",)),
    "fedadagrad": Entry("Adagrad on the server", "Algorithms 2, 5", fedopt, servers=("adagrad",)),
    "fedadam": Entry("Adam on the server", "Algorithms 2, 5", fedopt, servers=("adam",)),
    "fedyogi": Entry("Yogi on the server", "Algorithms 2, 5", fedopt, servers=("yogi",)),
    "scaffold": Entry(
        "control variates against client drift; clients keep state",
        "Algorithm 6",
        lambda client, server, **options: scaffold(**options),
        options={"client": scaffold},
    ),
    "fedopt": Entry("any client with any server optimizer", "Algorithms 1, 4", fedopt, _ANY, _ANY),
    "fedprox": Entry(
        "FedOpt with a proximal term on the client", "Related work", fedprox, _ANY, _ANY, {"client": fedprox}
    ),
    "adaalter": Entry(
        "clients share an Adagrad-like accumulator",
        "Appendix, client adaptivity",
        lambda client, server, **options: adaalter(**options),
        clients=(),
        options={"client": adaalter},
    ),
    "lookahead": Entry(
        "adaptive clients, SGD on the server",
        "Appendix, client adaptivity",
        lambda client, server, **options: lookahead(client, **options),
        clients=_ADAPTIVE,
        options={"client": lookahead},
    ),
    "centralized": Entry(
        "one optimizer on the shuffled union of all clients",
        "Appendix, learning-rate decay",
        lambda client, server: centralized(client),
        clients=_ANY,
    ),
}


def keywords(factory: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only arguments of a factory with their defaults: its configuration.

    >>> keywords(sgdm)
    {'momentum': 0.9, 'fold_rate': False}
    """
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


Choice = tuple[str, Mapping[str, Any]] | None  # an optimizer's name and its keyword arguments


def build(name: str, client: Choice, server: Choice, options: Mapping[str, Any]) -> Algorithm:
    """The algorithm `name` with the chosen optimizers; None where it has a rule of its own."""
    optimizers = [OPTIMIZERS[choice[0]](**choice[1]) if choice else None for choice in (client, server)]
    return ALGORITHMS[name].build(*optimizers, **options)
