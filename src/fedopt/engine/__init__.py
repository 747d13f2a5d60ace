"""Run a round: sampling, executors, aggregation, evaluation, training loop. Start with `round.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedopt.lazy import lazy_names

if TYPE_CHECKING:
    from fedopt.engine.evaluate import is_evaluated
    from fedopt.engine.executors import ExecutorOptions, available_cores

__all__ = ["ExecutorOptions", "available_cores", "is_evaluated"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fedopt.engine.evaluate": "is_evaluated",
            "fedopt.engine.executors": "ExecutorOptions available_cores",
        },
    )
