"""Build the model of a run and read its parts before the first round."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakValueDictionary

from torch import nn

from fedopt.algorithms.base import Vector
from fedopt.engine.problem import Problem
from fedopt.engine.torch_state import seeded, single_thread
from fedopt.errors import FedoptError, ModelError, one_line
from fedopt.models.fixed_state import FixedState, describe_parameters
from fedopt.models.flat import Flat

_built: WeakValueDictionary[int, nn.Parameter] = WeakValueDictionary()  # by id; of all modules of the process


class InitialModel(NamedTuple):
    """The model before the first round: x_0, and what training does not change."""

    x: Vector
    fixed: FixedState
    parameters: dict[str, str]  # type and shape of each trainable parameter
    statistics: Vector | None = None  # running statistics, if training changes them


def read_model(module: nn.Module, buffers: str = "refuse") -> InitialModel:
    """Return the parts of a module."""
    flat = Flat(module, buffers)
    statistics = None if flat.statistics is None else flat.statistics.initial
    return InitialModel(flat.read(), flat.fixed(), describe_parameters(module), statistics)


def initial_model(problem: Problem) -> InitialModel:
    """Build the model of a run in the main process."""
    try:
        return read_model(build_module(problem), problem.buffers)
    except FedoptError:
        raise
    except Exception as error:
        raise ModelError(f"the model cannot be built: {one_line(error)}", what="model") from error


def initial_vector(problem: Problem) -> Vector:
    """Return x_0."""
    return initial_model(problem).x


def build_module(problem: Problem) -> nn.Module:
    """Build the module with the seed of the run. One thread, because QR depends on it.

    With `problem.fixed`, the frozen parameters and buffers have the values of the run.
    """
    with single_thread(), seeded(problem.seed, "init"):
        module = problem.model()
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"the model is of type {type(module).__name__}; expected a torch.nn.Module, or a function that "
            "returns one",
            what="model",
        )
    trained = {id(p): p for p in module.parameters() if p.requires_grad}
    if any(_built.get(at) is p for at, p in trained.items()):
        raise ModelError(
            "the model function returned the same parameters as in an earlier call, which training changes; "
            "build a new module in each call, or pass the module itself",
            what="model",
        )
    _built.update(trained)
    if problem.fixed is not None:
        problem.fixed.apply(module)
    return module
