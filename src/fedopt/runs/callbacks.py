"""Callbacks of a run: functions that are called after every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import torch

from fedopt.algorithms.state import map_vectors
from fedopt.engine.loop import Step
from fedopt.errors import ModelError, one_line


class CallbackResult(Enum):
    """Return values of a callback that have a meaning. All other values are ignored."""

    STOP = "stop"


STOP: Final = CallbackResult.STOP
"""A callback returns this to end the run after the current round, with a checkpoint."""

Callback = Callable[[Step], object]


def combine_callbacks(callbacks: Sequence[Callback]) -> Callback:
    """Return one function that calls all callbacks with a step, and returns `STOP` if one of them does.

    They receive copies of the state vectors: training a module whose parameters are views of x would change
    the run.
    """

    def on_step(step: Step) -> object:
        position = step.position
        state = map_vectors(position.state, torch.clone)
        step = step._replace(position=position._replace(state=state))
        results = [_call(callback, step) for callback in callbacks]
        return STOP if STOP in results else None

    return on_step


def _call(callback: Callback, step: Step) -> CallbackResult | None:
    try:
        result = callback(step)
    except Exception as error:
        name = getattr(callback, "__qualname__", type(callback).__name__)
        round = step.position.round
        raise ModelError(
            f"callback {name} failed after round {round}: {one_line(error)}", what=name, round=round
        ) from error
    return STOP if result is STOP else None
