"""The result of a comparison in one sentence: the best configuration, its margin and how certain it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedopt.analysis.seeds import Interval
from fedopt.analysis.summary import NOISE, UNKNOWN, WORSE, Comparison, Summary
from fedopt.formatting import Unit, metric_unit
from fedopt.runs.records import averaged_rounds

MAX_NAMED = 4  # other configurations in the sentence


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

    For example: "fedadam reaches 41.5 % accuracy at round 20, 1.0 points above fedyogi and 5.9 above fedavg.
    One seed: 1.0 points may be noise; several seeds (--seeds 0:5 or seeds=range(5)) measure it."
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
