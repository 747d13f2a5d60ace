"""The winner of a sweep in a few sentences. The terminal and the report show the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedopt.analysis.headline import describe_value
from fedopt.analysis.heatmap import RateGrid, RateTrial
from fedopt.analysis.run_numbers import TRAIN_LOSS
from fedopt.analysis.seeds import Interval
from fedopt.formatting import metric_unit
from fedopt.runs.records import LAST_ROUNDS

PAPERS_RULE = "the paper's rule"  # smallest mean train loss over the last 100 rounds


class ScoredTrial(NamedTuple):
    """A point of a method's grid with its score by the selection rule."""

    method: str
    point: str  # in the notation of grids: client_lr=-1.5 tau=-3
    score: Interval  # of the selection criterion, mean over seeds
    value: Interval | None  # of the task's metric
    edges: Sequence[str]  # axes on which the point is at the edge of the grid


def describe_rule(select: str) -> str:
    """Return the selection rule for display.

    >>> describe_rule("train_loss")
    "the paper's rule (smallest mean train loss over the last 100 rounds)"
    """
    if select == TRAIN_LOSS:
        return f"{PAPERS_RULE} (smallest mean train loss over the last {LAST_ROUNDS} rounds)"
    return f"{metric_unit(select).name} (mean over the evaluations of the last {LAST_ROUNDS} rounds)"


def describe_selection(
    selected: Sequence[ScoredTrial],
    best_by_metric: ScoredTrial | None,
    select: str,
    metric: str,
    lower_is_better: bool,
) -> list[str]:
    """Return sentences about the winner, the best metric value and the edge of the grid.

    Args:
        selected: the trial of each method that the rule selects.
        best_by_metric: the trial of any method with the best value of the task's metric.
        select: the selection criterion, `train_loss` or a metric.
        metric: the task's metric.
        lower_is_better: whether lower values of `select` are better.
    """
    if not selected:
        return ["No trial has a finite result; try a grid with smaller rates."]
    ranked = sorted(selected, key=lambda trial: trial.score.mean if lower_is_better else -trial.score.mean)
    winner, *others = ranked
    criterion, unit = metric_unit(select), metric_unit(metric)
    score = describe_value(criterion, winner.score)
    value = "" if select == metric or winner.value is None else f", {describe_value(unit, winner.value)}"
    margin = ""
    if others:
        gap = criterion.format_difference(abs(winner.score.mean - others[0].score.mean))
        direction = "below" if lower_is_better else "above"
        margin = f"; {gap}{criterion.difference_unit} {direction} the best trial of {others[0].method}"
    certainty = " One seed: differences may be noise." if winner.score.n == 1 else ""
    sentences = [
        f"Selected by {describe_rule(select)}: {winner.method} at {winner.point}: "
        f"{score}{value}{margin}.{certainty}"
    ]
    if best_by_metric is not None and best_by_metric.value is not None and select != metric:
        is_winner = (best_by_metric.method, best_by_metric.point) == (winner.method, winner.point)
        where = "the same trial" if is_winner else f"{best_by_metric.method} at {best_by_metric.point}"
        sentences.append(f"Best {unit.name}: {unit.format(best_by_metric.value.mean)}, {where}.")
    at_edge = [f"{trial.method} ({', '.join(trial.edges)})" for trial in ranked if trial.edges]
    if at_edge:
        sentences.append(f"At the edge of the grid: {'; '.join(at_edge)}. A wider grid may be better.")
    return sentences


def describe_grid_selection(grids: Sequence[RateGrid], select: str, metric: str) -> list[str]:
    """Return the sentences of `describe_selection` for grids, which have been read with `metric`."""
    if not grids:
        return []
    selected = [_scored(grid, trial, select) for grid in grids if (trial := grid.selected_by(select))]
    best = [_scored(grid, trial, select) for grid in grids if (trial := grid.best)]
    sign = -1.0 if grids[0].higher_is_better else 1.0
    by_metric = min(best, key=lambda t: sign * t.value.mean if t.value else 0.0, default=None)
    lower_is_better = select == TRAIN_LOSS or not grids[0].higher_is_better
    return describe_selection(selected, by_metric, select, metric, lower_is_better)


def _scored(grid: RateGrid, trial: RateTrial, select: str) -> ScoredTrial:
    score = trial.train_loss_interval if select == TRAIN_LOSS else trial.value_interval
    assert score is not None  # selected trials have one
    return ScoredTrial(grid.method, trial.point, score, trial.value_interval, grid.edges(trial))
