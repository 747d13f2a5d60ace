"""The result of a comparison in one sentence: the best configuration, its margin and how certain it is."""

from __future__ import annotations

from collections.abc import Sequence

from fedopt.analysis.seeds import Interval
from fedopt.analysis.summary import NOISE, UNKNOWN, WORSE, Comparison, Summary
from fedopt.formatting import Unit, metric_unit
from fedopt.runs.records import LAST_ROUNDS

MAX_NAMED = 3  # other configurations in the sentence


def headline(comparison: Comparison) -> str:
    """Return the best result, its margin over the others, and a sentence about noise.

    For example: "fedadam reaches 41.5 % accuracy at round 20, 1.0 points above fedyogi and 5.9 above fedavg.
    One seed: 1.0 points may be noise; several seeds, such as --seeds 0:5, measure it."
    """
    best = comparison.best
    if best.result is None or best.failed:
        return "No run has a result yet."
    pairs = zip(comparison.summaries[1:], comparison.differences()[1:], strict=True)
    others = [(other, difference) for other, difference in pairs if other.result and not other.state]
    margins = _describe_margins(comparison, others)
    return f"{_describe_best(best)}{margins}. {_describe_certainty(comparison, others)}".strip()


def _describe_best(best: Summary) -> str:
    assert best.result is not None
    value = describe_value(metric_unit(best.record.metric), best.result)
    seeds = f" (mean of {best.result.n} seeds, 95 % interval)" if best.result.n > 1 else ""
    state = f" ({best.note})" if best.state else ""
    if best.rule == "paper":
        return f"{best.label} has {value} as mean over the last {LAST_ROUNDS} rounds{seeds}{state}"
    return f"{best.label} reaches {value} at round {_last_round(best)}{seeds}{state}"


def describe_value(unit: Unit, value: Interval) -> str:
    """Return a value with the name of its metric.

    >>> describe_value(metric_unit("accuracy"), Interval(0.415, None, 1))
    '41.5 % accuracy'
    >>> describe_value(metric_unit("mse"), Interval(0.01698, None, 1))
    '16.98 (MSE × 1000)'
    """
    text = unit.format(value.mean, value.half_width)
    return f"{text} {unit.name}" if unit.suffix else f"{text} ({unit.name})"


def _describe_margins(comparison: Comparison, others: Sequence[tuple[Summary, Interval | None]]) -> str:
    """Return ", 1.0 points above fedyogi and 5.9 above fedavg", or "" without other results."""
    unit, best = metric_unit(comparison.metric), comparison.best
    direction = "above" if comparison.higher_is_better else "below"
    parts: list[str] = []
    for other, difference in others[:MAX_NAMED]:
        margin, half_width = _margin(comparison, other, difference)
        points = "" if parts else unit.difference_unit
        rounds = _last_round(other)
        at = f" (at round {rounds})" if best.rule == "last" and rounds != _last_round(best) else ""
        parts.append(f"{unit.format_difference(margin, half_width)}{points} {direction} {other.label}{at}")
    listed = " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    return f", {listed}" if listed else ""


def _margin(
    comparison: Comparison, other: Summary, difference: Interval | None
) -> tuple[float, float | None]:
    """Return how far another result is behind the best, paired by seed if they have common seeds."""
    sign = 1 if comparison.higher_is_better else -1
    if difference is not None:
        return -sign * difference.mean, difference.half_width
    assert comparison.best.result is not None and other.result is not None
    return sign * (comparison.best.result.mean - other.result.mean), None


def _describe_certainty(comparison: Comparison, others: Sequence[tuple[Summary, Interval | None]]) -> str:
    if not others:
        return ""
    verdicts = {
        summary.label: v for summary, v in zip(comparison.summaries, comparison.verdicts(), strict=True)
    }
    noise, unknown, worse = (
        [other.label for other, _ in others if verdicts[other.label] == kind]
        for kind in (NOISE, UNKNOWN, WORSE)
    )
    if unknown and not noise and not worse:
        unit = metric_unit(comparison.metric)
        margin, _ = _margin(comparison, *others[0])
        text = f"{unit.format_difference(margin)}{unit.difference_unit or ' (' + unit.name + ')'}"
        return f"One seed: {text} may be noise; several seeds, such as --seeds 0:5, measure it."
    parts = []
    if noise:
        parts.append(f"Within noise of {comparison.best.label}: {_join(noise)}.")
    elif worse and not unknown:
        parts.append("The differences are larger than noise.")
    if unknown:
        parts.append(f"Fewer than two common seeds: {_join(unknown)}.")
    return " ".join(parts)


def _last_round(summary: Summary) -> int:
    """Return the round of the last evaluation; of the longest run, if seeds differ."""
    return max(record.last_evaluation.round for record in summary.group.counted)


def _join(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
    return ", ".join(labels[:MAX_NAMED]) + more
