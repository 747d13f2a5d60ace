"""Call the functions of an algorithm that run on the server, and check what they return."""

from __future__ import annotations

import traceback

from fedopt.algorithms import Algorithm, Round, State, Vector
from fedopt.algorithms.state import flatten, has_form_of
from fedopt.errors import FedoptError, ModelError, one_line


def initial_state(algorithm: Algorithm, x: Vector) -> State:
    """Return the state before the first round. Errors in a user's algorithm are explained in one line."""
    try:
        state = algorithm.init(x)
    except Exception as error:
        raise _explain("init", error) from error
    missing = [name for name in ("x", *algorithm.sends) if not hasattr(state, name)]
    if missing:
        raise ModelError(
            f"init returned a {type(state).__name__} without the vector {missing[0]!r}; it must return a "
            "NamedTuple with x and the vectors that `sends` names",
            what="init",
        )
    flatten(state)  # raises an error if the state cannot be stored
    return state


def call_server(algorithm: Algorithm, state: State, mean: tuple[Vector, ...], round: Round) -> State:
    try:
        after = algorithm.server(state, mean, round)
    except FedoptError:
        raise
    except Exception as error:
        raise _explain("server", error, round.t + 1) from error
    if not has_form_of(after, state):
        _check_form(state, after)
    return after


def _explain(function: str, error: Exception, round: int | None = None) -> ModelError:
    where = "" if round is None else f" in round {round}"
    failure = ModelError(
        f"the {function} function of the algorithm failed{where}: {one_line(error)}",
        what=function,
        round=round,
    )
    failure.add_note(traceback.format_exc())
    return failure


def _check_form(before: State, after: State) -> None:
    """Check that the server keeps the form of its state, which resumed runs rely on."""
    if not isinstance(after, tuple):
        raise ModelError(
            f"the server function returned a {type(after).__name__}; it must return its state, a "
            f"{type(before).__name__}",
            what="server",
        )
    expected, returned = flatten(before), flatten(after)
    if expected.keys() != returned.keys():
        raise ModelError(
            f"the server function returned the vectors {', '.join(returned) or 'none'}, but init made "
            f"{', '.join(expected)}; an optimizer with a state needs an init: fedopt.Optimizer(update, init)",
            what="server",
        )
    for name, vector in expected.items():
        other = returned[name]
        if (vector.shape, vector.dtype) != (other.shape, other.dtype):
            raise ModelError(
                f"the server function returned {name} with shape {tuple(other.shape)} and type "
                f"{other.dtype}; expected {tuple(vector.shape)} and {vector.dtype}",
                what="server",
            )
