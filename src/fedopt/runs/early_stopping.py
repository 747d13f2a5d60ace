"""Early stopping: end a run when its metric no longer improves.

The decision depends on the recorded evaluations only, so a resumed run stops at the same round. They use the
test set, so it is not independent of the moment at which the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedopt.runs.config import StopSection
from fedopt.runs.records import LOWER_IS_BETTER, number


def lower_is_better(metric: str, main: str, better: str) -> bool:
    """Whether lower values of `metric` are better. `better` is the direction of the task's metric `main`."""
    return better == "lower" if metric == main else metric in LOWER_IS_BETTER


def has_stopped_improving(
    evaluations: Sequence[dict[str, Any]], stop: StopSection, lower_is_better: bool
) -> bool:
    """Whether the last `stop.patience` evaluations did not improve the metric by more than `stop.min_delta`.

    The evaluation before the first round counts as the first value. A value that is not finite is no
    improvement. A patience of 0 disables early stopping.

    >>> stop = StopSection(metric="accuracy", patience=2, min_delta=0.01)
    >>> lines = [{"accuracy": value} for value in (0.10, 0.50, 0.505, 0.51)]
    >>> has_stopped_improving(lines[:3], stop, False), has_stopped_improving(lines, stop, False)
    (False, True)
    """
    if stop.patience == 0:
        return False
    best, since_best = float("-inf"), 0
    for line in evaluations:
        value = number(line.get(stop.metric))
        gain = float("-inf") if value is None else -value if lower_is_better else value
        if gain > best + stop.min_delta:
            best, since_best = gain, 0
        else:
            since_best += 1
    return since_best >= stop.patience
