"""The winner of a sweep in a few sentences. The terminal and the report show the same sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fedopt.analysis.headline import describe_margin, describe_value
from fedopt.analysis.heatmap import RateGrid, RateTrial
from fedopt.analysis.run_numbers import TRAIN_LOSS
from fedopt.analysis.seeds import Interval
from fedopt.formatting import Unit, metric_unit
from fedopt.runs.records import averaged_rounds

PAPERS_RULE = "the paper's rule"  # smallest mean train loss over the last 100 rounds


class ScoredTrial(NamedTuple):
    """A point of a method's grid with its score by the selection rule."""

    method: str
    point: str  # in the notation of grids: client_lr=-1.5 tau=-3
    score: Interval  # of the selection criterion, mean over the last rounds and over seeds
    value: Interval | None  # of the task's metric, the same mean
    last: Interval | None  # of the task's metric at the last evaluation
    rounds: int
    edges: Sequence[str]  # axes on which the point is at the edge of the grid


def describe_rule(select: str, rounds: str) -> str:
    """Return the selection rule for display. `rounds` are those of `averaged_rounds`.

    >>> describe_rule("train_loss", "last 100 rounds")
    "the paper's rule (smallest train loss, mean of last 100 rounds)"
    """
    if select == TRAIN_LOSS:
        return f"{PAPERS_RULE} (smallest train loss, mean of {rounds})"
    return f"{metric_unit(select).name} (mean of {rounds})"


def mean_unit(metric: str) -> Unit:
    """Return the unit of the mean of a metric over rounds. The bare name is that of the last evaluation.

    >>> mean_unit("accuracy").name
    'mean accuracy'
    """
    unit = metric_unit(metric)
    return unit._replace(name=f"mean {unit.name}")


def describe_selection(
    trials: Sequence[ScoredTrial], select: str, metric: str, select_higher: bool, metric_higher: bool
) -> list[str]:
    """Return sentences about the winner, the best metric values and the edge of the grid.

    Args:
        trials: the complete trials of all methods.
        select: the selection criterion, `train_loss` or a metric.
        metric: the task's metric.
        select_higher: whether higher values of `select` are better.
        metric_higher: whether higher values of `metric` are better.
    """
    if not trials:
        return ["No trial has a finite result; try a grid with smaller rates."]
    sign = -1 if select_higher else 1
    ordered = sorted(trials, key=lambda trial: sign * trial.score.mean)
    winner, ranked = ordered[0], _first_of_each_method(ordered)
    numbers = [
        describe_value(mean_unit(select), winner.score) + _describe_margin(ranked, select, select_higher)
    ]
    if select != metric and winner.value is not None:
        numbers.append(describe_value(mean_unit(metric), winner.value))
    if winner.last is not None:
        numbers.append(f"{describe_value(metric_unit(metric), winner.last)} at round {winner.rounds}")
    rule = describe_rule(select, averaged_rounds({trial.rounds for trial in trials}))
    certainty = " One seed: differences may be noise." if winner.score.n == 1 else ""
    sentences = [
        f"Selected by {rule}: {winner.method} at {winner.point}{_scale_note(winner.point)}. Its results: "
        f"{'; '.join(numbers)}.{certainty}"
    ]
    if select != metric:
        sentences += _describe_best(mean_unit(metric), [(t, t.value) for t in ordered], metric_higher)
    sentences += _describe_best(metric_unit(metric), [(t, t.last) for t in ordered], metric_higher)
    at_edge = [f"{trial.method} ({', '.join(trial.edges)})" for trial in ranked if trial.edges]
    if at_edge:
        sentences.append(f"At the edge of the grid: {'; '.join(at_edge)}. A wider grid may be better.")
    return sentences


def _scale_note(point: str) -> str:
    """Return a note if the rates of a point are logarithms."""
    return " (rates in log10)" if re.search(r"\b(client_lr|server_lr|tau)=", point) else ""


def _first_of_each_method(trials: Sequence[ScoredTrial]) -> list[ScoredTrial]:
    methods: dict[str, ScoredTrial] = {}
    for trial in trials:
        methods.setdefault(trial.method, trial)
    return list(methods.values())


def _describe_margin(ranked: Sequence[ScoredTrial], select: str, higher_is_better: bool) -> str:
    """Return how far the winner is ahead of the best trial of the next method, "" for one method."""
    if len(ranked) == 1:
        return ""
    winner, other, unit = ranked[0], ranked[1], metric_unit(select)
    gap = abs(winner.score.mean - other.score.mean)
    if gap == 0:
        return f", equal to the best trial of {other.method}"
    direction = "above" if higher_is_better else "below"
    text = describe_margin(unit, Interval(gap, None, 1))
    return f", {text}{unit.difference_unit} {direction} the best trial of {other.method}"


def _describe_best(
    unit: Unit, values: Sequence[tuple[ScoredTrial, Interval | None]], higher_is_better: bool
) -> list[str]:
    """Return a sentence about the best value, none without values. The first trial is the winner."""
    known = [(value.mean, trial) for trial, value in values if value is not None]
    if not known:
        return []
    best, trial = (max if higher_is_better else min)(known, key=lambda pair: pair[0])
    where = "the same trial" if trial is values[0][0] else f"{trial.method} at {trial.point}"
    return [f"Best {unit.name}: {unit.format(best)}, {where}."]


def describe_grid_selection(grids: Sequence[RateGrid], select: str, metric: str) -> list[str]:
    """Return the sentences of `describe_selection` for grids, which have been read with `metric`."""
    if not grids:
        return []
    trials = [scored for grid in grids for trial in grid.trials if (scored := _scored(grid, trial, select))]
    metric_higher = grids[0].higher_is_better
    return describe_selection(trials, select, metric, metric_higher and select != TRAIN_LOSS, metric_higher)


def _scored(grid: RateGrid, trial: RateTrial, select: str) -> ScoredTrial | None:
    """Return a trial with its score, or None if it is not complete or has none."""
    score = trial.train_loss_interval if select == TRAIN_LOSS else trial.value_interval
    if trial.state or score is None:
        return None
    rounds, edges = max(record.rounds for record in trial.group.counted), grid.edges(trial)
    return ScoredTrial(
        grid.method, trial.point, score, trial.value_interval, trial.last_interval, rounds, edges
    )
