"""Give up trials whose worker process dies again and again."""

from __future__ import annotations

from collections import Counter

from fedopt.errors import WorkerError
from fedopt.tuning.stacks import Stack

MAX_DEATHS = 3  # of worker processes, per stack


def stack_key(stack: Stack) -> str:
    """Return the path of the first trial, which identifies a stack."""
    return stack[0].trial.key


def count_death(stack: Stack, deaths: Counter[str]) -> None:
    """Count the death of a worker process that ran a stack. Raise an error after the last one."""
    trial = stack[0].trial
    others = f" and {len(stack) - 1} others" if len(stack) > 1 else ""
    deaths[stack_key(stack)] += 1
    if deaths[stack_key(stack)] == MAX_DEATHS:
        raise WorkerError(
            f"the worker process of trial {trial.label}{others} ({trial.path}) died {MAX_DEATHS} times, "
            "possibly out of memory; use fewer workers"
        )
