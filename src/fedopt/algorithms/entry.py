"""Entries of the registry of algorithms, also for user-defined algorithms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fedopt.algorithms.base import Algorithm
from fedopt.errors import UserCodeError, UserError
from fedopt.references import required_arguments, user_code_error

BuildAlgorithm = Callable[..., Algorithm]
# A name, a reference such as "my_project.algorithms:feddyn", an algorithm, or a function that builds one.
AlgorithmChoice = str | Algorithm | BuildAlgorithm

_OPTION_TYPES = (bool, int, float, str)  # of the arguments that can be written in config.toml


class AlgorithmEntry(NamedTuple):
    """An algorithm in the registry."""

    what: str
    paper: str  # the place in the paper
    build: BuildAlgorithm  # its positional arguments are optimizers: `client`, `server`, both or none
    # allowed client optimizers, the default first; () if the algorithm has its own rule
    clients: tuple[str, ...] = ("sgd",)
    servers: tuple[str, ...] = ("sgd",)

    @property
    def options(self) -> Mapping[str, Callable[..., Any]]:
        """Section of the configuration -> factory whose keyword-only arguments are keys of the section."""
        return {"client": self.build}


def keywords(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only arguments of a factory with their defaults."""
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class OwnBuilder:
    """Builds a user-defined algorithm.

    Its signature has the keyword-only arguments of the user's function whose defaults are numbers, strings or
    booleans. They are configuration keys.
    """

    algorithm: Algorithm | BuildAlgorithm
    name: str

    def __call__(self, **options: Any) -> Algorithm:
        algorithm = self.algorithm
        if not isinstance(algorithm, Algorithm):
            try:
                algorithm = algorithm(**options)
            except UserError:
                raise
            except Exception as error:
                raise user_code_error(f"algorithm {self.name!r} failed", self.name, error) from error
        if not isinstance(algorithm, Algorithm):
            raise UserCodeError(
                f"algorithm {self.name!r} returned an object of type {type(algorithm).__name__}; expected "
                "fedopt.Algorithm",
                reference=self.name,
            )
        return algorithm

    @property
    def __signature__(self) -> inspect.Signature:
        if isinstance(self.algorithm, Algorithm):
            return inspect.Signature()
        signature = _read_signature(self.algorithm)
        bound = self.algorithm.keywords if isinstance(self.algorithm, partial) else {}
        options = [
            p.replace(annotation=_option_type(p))
            for p in signature.parameters.values()
            if p.kind is p.KEYWORD_ONLY and isinstance(p.default, _OPTION_TYPES) and p.name not in bound
        ]
        return inspect.Signature(options)


def own_entry(algorithm: Algorithm | BuildAlgorithm, name: str) -> AlgorithmEntry:
    """Return the entry of a user-defined algorithm, or raise an error if it cannot be built."""
    if not callable(algorithm) and not isinstance(algorithm, Algorithm):
        raise UserCodeError(
            f"algorithm {name!r} is of type {type(algorithm).__name__}; expected fedopt.Algorithm, or a "
            "function that returns one",
            reference=name,
        )
    if not isinstance(algorithm, Algorithm) and (missing := required_arguments(algorithm)):
        raise UserCodeError(
            f"algorithm {name!r} needs the argument {missing[0]!r}; give it a default, or bind it with "
            "functools.partial",
            reference=name,
        )
    return AlgorithmEntry("user-defined", "", OwnBuilder(algorithm, name), clients=(), servers=())


def own_name(algorithm: Algorithm | BuildAlgorithm) -> str:
    """The name of a user-defined algorithm: that of its function, with the arguments of a partial."""
    if isinstance(algorithm, partial):
        arguments = [*map(repr, algorithm.args), *(f"{k}={v!r}" for k, v in algorithm.keywords.items())]
        return f"{getattr(algorithm.func, '__name__', 'own')}({', '.join(arguments)})"
    return getattr(algorithm, "__name__", "own")


def _read_signature(function: BuildAlgorithm) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # an annotation that cannot be evaluated at run time
        return inspect.signature(function)


def _option_type(parameter: inspect.Parameter) -> Any:
    """The annotation of an argument, or the type of its default if there is no usable annotation."""
    default: Any = type(parameter.default)
    if parameter.annotation is parameter.empty or isinstance(parameter.annotation, str):
        return default
    try:
        return parameter.annotation | None and parameter.annotation
    except TypeError:
        return default
