"""Results in sentences: the best of a comparison and its margin, and the trial that a sweep selects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fedopt.formatting import Unit, metric_unit
from fedopt.intervals import Interval
from fedopt.reports.grids import RateGrid, RateTrial, SweepView
from fedopt.reports.summary import NOISE, TRAIN_LOSS, UNKNOWN, WORSE, Comparison, Summary
from fedopt.runs.records import averaged_rounds

PAPERS_RULE = "the paper's rule"  # smallest mean train loss over the last 100 rounds
MAX_NAMED = 4  # other configurations in the sentence
MAX_LISTED = 12  # configurations of a page whose failures are named


class _Other(NamedTuple):
    """A configuration that is not the best: how far its result is behind the best, and the verdict."""

    summary: Summary
    margin: Interval
    verdict: str

    @property
    def label(self) -> str:
        return self.summary.label


def headline(comparison: Comparison) -> str:
    """Return the best result, its margin over the others, and a sentence about noise.

    Args:
        comparison: the result of `compare_runs`.

    Returns:
        The sentences.

    Examples:
        >>> from fedopt.reports.summary import compare_runs
        >>> from fedopt.runs.records import Path, RunRecord
        >>> info = {"task": "so_lr", "algorithm": "fedavg", "status": "done", "metric": "accuracy"}
        >>> headline(compare_runs([RunRecord(Path(), info, {}, [], [{"round": 5, "accuracy": 0.5}])]))
        'fedavg reaches 50.0 % accuracy at round 5.'
    """
    best = comparison.best
    if best.result is None or best.failed:
        return "No run has a result yet."
    others = _others(comparison)
    equal = [other for other in others if _is_equal(best, other)]
    behind = [other for other in others if other not in equal]
    first = _describe_best(best, [best.label, *(other.label for other in equal)])
    margins = _describe_margins(comparison, [other for other in behind if other.verdict != NOISE])
    return f"{first}{margins}. {_describe_certainty(comparison, equal, behind)}".strip()


def _others(comparison: Comparison) -> list[_Other]:
    """Return the complete configurations other than the best, paired by seed if they have common seeds."""
    best, sign = comparison.best, 1 if comparison.higher_is_better else -1
    others = []
    rows = zip(comparison.summaries, comparison.differences(), comparison.verdicts(), strict=True)
    for other, difference, verdict in rows:
        if other is best or other.result is None or other.state:
            continue
        if difference is None:
            assert best.result is not None
            difference = Interval(other.result.mean - best.result.mean, None, 1)
        margin = difference._replace(mean=-sign * difference.mean)
        others.append(_Other(other, margin, verdict))
    return others


def _is_equal(best: Summary, other: _Other) -> bool:
    """Return whether the result of a configuration is exactly that of the best, at the same round."""
    is_same_round = best.rule == "paper" or _last_round(best) == _last_round(other.summary)
    return other.margin.mean == 0 and not other.margin.half_width and is_same_round


def _describe_best(best: Summary, labels: Sequence[str]) -> str:
    """Return the best result and the configurations that have it."""
    assert best.result is not None
    value = describe_value(metric_unit(best.record.metric), best.result)
    seeds = f" (mean of {best.result.n} seeds, 95 % interval)" if best.result.n > 1 else ""
    state = f" ({best.note})" if best.state else ""
    names, several = _join(labels), len(labels) > 1
    if best.rule == "paper":
        rounds = averaged_rounds({record.rounds for record in best.group.counted})
        return f"{names} {'have' if several else 'has'} {value} as mean of {rounds}{seeds}{state}"
    return f"{names} {'reach' if several else 'reaches'} {value} at round {_last_round(best)}{seeds}{state}"


def describe_value(unit: Unit, value: Interval) -> str:
    """Return a value with the name of its metric.

    >>> describe_value(metric_unit("accuracy"), Interval(0.415, None, 1))
    '41.5 % accuracy'
    >>> describe_value(metric_unit("mse"), Interval(0.01698, None, 1))
    '16.98 (MSE × 1000)'
    """
    text = unit.format(value.mean, value.half_width)
    return f"{text} {unit.name}" if unit.suffix else f"{text} ({unit.name})"


def describe_margin(unit: Unit, margin: Interval) -> str:
    """Return a margin without its unit. A positive margin is never shown as 0.

    Args:
        unit: the result of `metric_unit`.
        margin: the difference of two results.

    Returns:
        The margin with its half-width, if it has one.

    Examples:
        >>> describe_margin(metric_unit("accuracy"), Interval(0.0002, None, 1))
        'less than 0.1'
    """
    text = unit.format_difference(margin.mean, margin.half_width)
    if margin.half_width is None and text == unit.format_difference(0.0):
        return f"less than {10**-unit.digits:.{unit.digits}f}"
    return text


def _describe_margins(comparison: Comparison, others: Sequence[_Other]) -> str:
    """Return ", 1.0 points above fedyogi and 5.9 above fedavg", or "" without other results."""
    unit, best = metric_unit(comparison.metric), comparison.best
    direction = "above" if comparison.higher_is_better else "below"
    parts: list[str] = []
    for other in others[:MAX_NAMED]:
        points = "" if parts else unit.difference_unit
        rounds = _last_round(other.summary)
        at = f" (at round {rounds})" if best.rule == "last" and rounds != _last_round(best) else ""
        parts.append(f"{describe_margin(unit, other.margin)}{points} {direction} {other.label}{at}")
    return f", {_join(parts)}" if parts else ""


def _describe_certainty(comparison: Comparison, equal: Sequence[_Other], behind: Sequence[_Other]) -> str:
    unit, best = metric_unit(comparison.metric), comparison.best
    noise, unknown, worse = (
        [other for other in behind if other.verdict == kind] for kind in (NOISE, UNKNOWN, WORSE)
    )
    if unknown and not noise and not worse:
        text = describe_margin(unit, unknown[0].margin)
        text += unit.difference_unit or f" ({unit.name})"
        return f"One seed: {text} may be noise; several seeds (--seeds 0:5 or seeds=range(5)) measure it."
    if equal and not behind and best.result is not None and best.result.n == 1:
        return "One seed: several seeds (--seeds 0:5 or seeds=range(5)) may distinguish them."
    parts = []
    if noise:
        margins = [
            f"{other.label} ({describe_margin(unit, other.margin)}{unit.difference_unit})" for other in noise
        ]
        parts.append(f"Within noise of {best.label}: {_join(margins)}.")
    elif worse and not unknown:
        parts.append("The differences are larger than noise.")
    if unknown:
        parts.append(f"Fewer than two common seeds: {_join([other.label for other in unknown])}.")
    return " ".join(parts)


def _last_round(summary: Summary) -> int:
    """Return the round of the last evaluation; of the longest run, if seeds differ."""
    return max(record.last_evaluation.round for record in summary.group.counted)


def _join(texts: Sequence[str]) -> str:
    """Join texts by commas and "and". Long lists are shortened."""
    if len(texts) > MAX_NAMED + 1:
        texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def describe_result(comparison: Comparison, sweep: SweepView) -> str:
    """Return the first sentences of a page: the best result or the trial of a sweep, and the failures."""
    text = headline(comparison)
    if sweep.is_sweep and sweep.select is not None:
        text = " ".join(describe_grid_selection(sweep.grids, sweep.select, sweep.metric))
    for state in ("diverged", "failed", "pruned"):
        labels = [summary.label for summary in comparison.summaries if summary.state == state]
        if labels:
            total = len(comparison.summaries)
            listed = ", ".join(labels) if total <= MAX_LISTED else f"{len(labels)} of {total}"
            text += f" {state.capitalize()}: {listed}."
    return text


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
    winner, methods = ordered[0], [trial.method for trial in ordered]
    ranked = [trial for at, trial in enumerate(ordered) if trial.method not in methods[:at]]
    numbers = [
        describe_value(mean_unit(select), winner.score) + _describe_lead(ranked, select, select_higher)
    ]
    if select != metric and winner.value is not None:
        numbers.append(describe_value(mean_unit(metric), winner.value))
    if winner.last is not None:
        numbers.append(f"{describe_value(metric_unit(metric), winner.last)} at round {winner.rounds}")
    rule = describe_rule(select, averaged_rounds({trial.rounds for trial in trials}))
    scale = " (rates in log10)" if re.search(r"\b(client_lr|server_lr|tau)=", winner.point) else ""
    certainty = " One seed: differences may be noise." if winner.score.n == 1 else ""
    sentences = [
        f"Selected by {rule}: {winner.method} at {winner.point}{scale}. Its results: "
        f"{'; '.join(numbers)}.{certainty}"
    ]
    if select != metric:
        sentences += _describe_best_value(mean_unit(metric), [(t, t.value) for t in ordered], metric_higher)
    sentences += _describe_best_value(metric_unit(metric), [(t, t.last) for t in ordered], metric_higher)
    at_edge = [f"{trial.method} ({', '.join(trial.edges)})" for trial in ranked if trial.edges]
    if at_edge:
        sentences.append(f"At the edge of the grid: {'; '.join(at_edge)}. A wider grid may be better.")
    return sentences


def _describe_lead(ranked: Sequence[ScoredTrial], select: str, higher_is_better: bool) -> str:
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


def _describe_best_value(
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
