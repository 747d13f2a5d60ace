"""The registry of algorithms: names, allowed optimizers, options and builders.

Keyword-only arguments of a factory are configuration keys. `OPTIMIZERS["adam"]` takes beta1, beta2, tau, ...,
which are the keys `server.beta1`, `server.beta2`, `server.tau` of a run. Those of an algorithm, also of a
user's, are keys of the clients: `def feddyn(*, alpha=0.1)` has the key `client.alpha`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from fedopt.algorithms.adaalter import adaalter
from fedopt.algorithms.adaptive import adabound, adagrad, adam, amsgrad, yogi
from fedopt.algorithms.base import Algorithm, ClientResult, Round, State, Vector, Work
from fedopt.algorithms.centralized import centralized
from fedopt.algorithms.entry import (
    AlgorithmChoice,
    AlgorithmEntry,
    BuildAlgorithm,
    keywords,
    own_entry,
    own_name,
)
from fedopt.algorithms.fedopt import fedopt
from fedopt.algorithms.fedprox import fedprox
from fedopt.algorithms.lookahead import lookahead
from fedopt.algorithms.optimizers import Optimizer, sgd, sgdm
from fedopt.algorithms.scaffold import scaffold
from fedopt.errors import unknown
from fedopt.references import is_reference, load_object

__all__ = [
    "ALGORITHMS",
    "OPTIMIZERS",
    "VARIANTS",
    "Algorithm",
    "AlgorithmChoice",
    "AlgorithmEntry",
    "BuildAlgorithm",
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
    "algorithm_name",
    "amsgrad",
    "build",
    "centralized",
    "fedopt",
    "fedprox",
    "find_algorithm",
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


ALGORITHMS: dict[str, AlgorithmEntry] = {
    "fedavg": AlgorithmEntry(
        "SGD on clients, averaging on the server with rate eta", "Algorithms 1, 3", fedopt
    ),
    "fedavgm": AlgorithmEntry("FedAvg with server momentum", "Algorithm 1", fedopt, servers=("sgdm",)),
    "fedadagrad": AlgorithmEntry("Adagrad on the server", "Algorithms 2, 5", fedopt, servers=("adagrad",)),
    "fedadam": AlgorithmEntry("Adam on the server", "Algorithms 2, 5", fedopt, servers=("adam",)),
    "fedyogi": AlgorithmEntry("Yogi on the server", "Algorithms 2, 5", fedopt, servers=("yogi",)),
    "scaffold": AlgorithmEntry(
        "control variates against client drift; clients keep state", "Algorithm 6", scaffold
    ),
    "fedopt": AlgorithmEntry("any client with any server optimizer", "Algorithms 1, 4", fedopt, _ANY, _ANY),
    "fedprox": AlgorithmEntry(
        "FedOpt with a proximal term on the client", "Related work", fedprox, _ANY, _ANY
    ),
    "adaalter": AlgorithmEntry(
        "clients share an Adagrad-like accumulator", "Appendix, client adaptivity", adaalter, clients=()
    ),
    "lookahead": AlgorithmEntry(
        "adaptive clients, SGD on the server", "Appendix, client adaptivity", lookahead, clients=_ADAPTIVE
    ),
    "centralized": AlgorithmEntry(
        "one optimizer on the shuffled union of all clients",
        "Appendix, learning-rate decay",
        centralized,
        clients=_ANY,
    ),
}


OptimizerChoice = tuple[str, Mapping[str, Any]] | None  # name and keyword arguments


def build(
    algorithm: AlgorithmChoice,
    client: OptimizerChoice,
    server: OptimizerChoice,
    options: Mapping[str, Any],
) -> Algorithm:
    """Build an algorithm with the chosen optimizers; None if the algorithm has its own rule.

    A name or reference is resolved in the process that calls this function.
    """
    factory, chosen = find_algorithm(algorithm).build, {"client": client, "server": server}
    parameters = inspect.signature(factory).parameters
    optimizers = {side: OPTIMIZERS[c[0]](**c[1]) for side, c in chosen.items() if c and side in parameters}
    return factory(**optimizers, **options)


def find_algorithm(algorithm: AlgorithmChoice) -> AlgorithmEntry:
    """Return the entry of an algorithm, which may be user-defined."""
    if not isinstance(algorithm, str):
        return own_entry(algorithm, own_name(algorithm))
    if is_reference(algorithm):
        return _load_algorithm(algorithm)
    if algorithm not in ALGORITHMS:
        raise unknown("algorithm", algorithm, ALGORITHMS, also="module:name of your own algorithm")
    return ALGORITHMS[algorithm]


def algorithm_name(algorithm: AlgorithmChoice) -> str:
    """The name of an algorithm in config.toml, in tables and in paths."""
    return algorithm if isinstance(algorithm, str) else own_name(algorithm)


@lru_cache
def _load_algorithm(reference: str) -> AlgorithmEntry:
    return own_entry(load_object(reference, "algorithm"), reference)
