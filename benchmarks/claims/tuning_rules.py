"""The verdicts on tuning: good client rates, tau, and the relation of client and server rates.

Thresholds are in `rules`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from claims.rules import (
    CONTRADICTED,
    HOLDS,
    MAX_PROBABILITY,
    MAX_SPAN_SHARE,
    MEASURE_SEED,
    MEASURED,
    NEAR_BEST,
    NON_ADAPTIVE,
    NOT_SHOWN,
    ROBUST,
    WEAKER,
    Verdict,
    has_several_seeds,
    lower,
    minus_text,
    names_text,
    not_run,
    upper,
)
from fedopt.reports import Interval, confidence_interval
from fedopt_paper.published import METHOD_NAMES

TAUS = (-5.0, -4.0, -3.0, -2.0, -1.0)

# By method and seed: the most client rates near the best for one server rate.
Counts = Mapping[str, Mapping[int, int]]
# Results by log10 of tau and seed.
TauResults = Mapping[float, Mapping[int, float]]


def describe_good_shares(shares: Mapping[str, Sequence[float]]) -> Verdict:
    """State the shares of good trials, which depend on the range of the grid. By method, one per seed."""
    if not shares:
        return not_run("trials of the heat maps", 0, 1)
    means = {method: sum(found) / len(found) for method, found in shares.items()}
    texts = [f"{METHOD_NAMES[method]} {mean * 100:.0f} %" for method, mean in means.items()]
    reason = "Share of trials that are at least halfway from a constant prediction to the best: "
    return Verdict(MEASURED, f"{reason}{', '.join(texts)}; it depends on the range of the grid")


def judge_good_client_rates(
    counts: Counts,
    others: Mapping[str, Counts],
    means: Mapping[str, int],
    total: int,
    judged: Collection[str],
) -> Verdict:
    """Judge "many client rates are good for one server rate" by numbers of client rates, of `total`.

    `others` are the numbers for other distances from the best, by name. `means` are the numbers by method if
    the results of the new seeds are averaged first. The claim holds at most weaker if one of these ways to
    count does not agree.
    """
    missing = {*judged, *NON_ADAPTIVE} - set(counts)
    if missing:
        return not_run(f"trials of {names_text(missing)}", len(counts), len(judged) + len(NON_ADAPTIVE))
    seeds = _common_seeds(counts)
    reason = (
        f"Most client rates (of {total}) within {NEAR_BEST * 100:g} points of the best for one server rate, "
        f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}: "
    )
    reason += "; ".join(
        f"{METHOD_NAMES[m]} {', '.join(str(counts[m][s]) for s in seeds)}"
        for m in METHOD_NAMES
        if m in counts
    )
    status = _judged_counts(counts, judged)
    statuses = {name: _judged_counts(found, judged) for name, found in others.items()}
    different = [f"{name}: {found}" for name, found in statuses.items() if found != status]
    if status == HOLDS and min(means[m] for m in judged) <= max(means[m] for m in NON_ADAPTIVE):
        different.append("averaged results: " + ", ".join(f"{METHOD_NAMES[m]} {n}" for m, n in means.items()))
    if different:
        reason += f"; other ways to count do not agree ({'; '.join(different)})"
        status = WEAKER if status == HOLDS else status
    return Verdict(status, reason)


def _common_seeds(counts: Counts) -> list[int]:
    return sorted(set.intersection(*(set(found) for found in counts.values())))


def _judged_counts(counts: Counts, judged: Collection[str]) -> str:
    """Return the status by the seeds that ran after the measure was chosen."""
    new = [seed for seed in _common_seeds(counts) if seed != MEASURE_SEED]
    leads = [min(counts[m][s] for m in judged) - max(counts[m][s] for m in NON_ADAPTIVE) for s in new]
    behind = [max(counts[m][s] for m in judged) - min(counts[m][s] for m in NON_ADAPTIVE) for s in new]
    if not new:
        return NOT_SHOWN
    if all(lead > 0 for lead in leads):
        return HOLDS if len(new) > 1 else WEAKER
    if all(lag < 0 for lag in behind):
        return CONTRADICTED if len(new) > 1 else NOT_SHOWN
    return WEAKER if min(leads) >= 0 and max(leads) > 0 else NOT_SHOWN


def judge_robustness(
    by_result: TauResults,
    by_loss: TauResults,
    at_edge: Collection[float],
    method: str,
    is_exception: bool = False,
) -> Verdict:
    """Judge "tau = 1e-3 works almost as well as all other values".

    The rates of `by_result` are those with the best result for each tau, the rates of `by_loss` those with
    the smallest training loss. The paper's text has the first, its caption the second; both must be robust.
    `at_edge` are values of tau whose selected rates are at the edge of the grid. Their true best result may
    be better. An exception is a case for which the paper does not claim robustness.
    """
    if not (set(TAUS) <= set(by_result) and set(TAUS) <= set(by_loss)):
        return not_run(f"values of tau for {METHOD_NAMES[method]}", len(by_result), len(TAUS))
    best, worst = _best_tau(by_result), _worst_tau(by_result)
    shares = [_share(values, -3.0, _best_tau(values)) for values in (by_result, by_loss)]
    reason = (
        f"tau = 1e-3 has {_percent(by_result, -3.0)} %, which is {_share_text(shares[0])} of the best tau "
        f"(1e{best:g}: {_percent(by_result, best)} %), or {_share_text(shares[1])} with the rates of the "
        f"smallest training loss; the worst tau has {_percent(by_result, worst)} %{_seeds_text(shares[0])}"
    )
    if is_exception:
        return Verdict(MEASURED, f"{reason}; the paper names this exception")
    return Verdict(_judged_shares(shares, bool(at_edge)), reason + _edge_text(at_edge))


def judge_small_differences(
    by_result: TauResults, by_loss: TauResults, method: str, at_edge: Collection[float] = ()
) -> Verdict:
    """Judge "only small differences among all values of tau" by the worst one.

    The arguments are those of `judge_robustness`.
    """
    if not (set(TAUS) <= set(by_result) and set(TAUS) <= set(by_loss)):
        return not_run(f"values of tau for {METHOD_NAMES[method]}", len(by_result), len(TAUS))
    best, worst = _best_tau(by_result), _worst_tau(by_result)
    shares = [_share(values, _worst_tau(values), _best_tau(values)) for values in (by_result, by_loss)]
    reason = (
        f"The worst tau (1e{worst:g}) has {_percent(by_result, worst)} %, {_share_text(shares[0])} of the "
        f"best (1e{best:g}: {_percent(by_result, best)} %), or {_share_text(shares[1])} with the rates of "
        f"the smallest training loss (worst tau 1e{_worst_tau(by_loss):g}){_seeds_text(shares[0])}"
    )
    return Verdict(_judged_shares(shares, bool(at_edge)), reason + _edge_text(at_edge))


def _edge_text(at_edge: Collection[float]) -> str:
    taus = ", ".join(f"1e{tau:g}" for tau in sorted(at_edge))
    return f"; selected rates are at the edge of the grid for tau = {taus}" if at_edge else ""


def _judged_shares(shares: Sequence[Interval], has_edges: bool) -> str:
    if all(share.mean >= ROBUST for share in shares):
        is_clear = all(has_several_seeds(share) and lower(share) >= ROBUST for share in shares)
        return HOLDS if is_clear and not has_edges else WEAKER
    is_below = all(has_several_seeds(share) and upper(share) < ROBUST for share in shares)
    return CONTRADICTED if is_below and not has_edges else NOT_SHOWN


def _mean(values: TauResults, tau: float) -> float:
    return sum(values[tau].values()) / len(values[tau])


def _best_tau(values: TauResults) -> float:
    return max(values, key=lambda tau: _mean(values, tau))


def _worst_tau(values: TauResults) -> float:
    return min(values, key=lambda tau: _mean(values, tau))


def _percent(values: TauResults, tau: float) -> str:
    return f"{_mean(values, tau) * 100:.1f}"


def _share(values: TauResults, tau: float, best: float) -> Interval:
    """Return the result with `tau` as a share of the result with `best`, paired by seed."""
    seeds = values[tau].keys() & values[best].keys()
    return confidence_interval([values[tau][seed] / values[best][seed] for seed in sorted(seeds)])


def _share_text(share: Interval) -> str:
    width = "" if share.half_width is None else f" ± {share.half_width * 100:.1f}"
    return f"{share.mean * 100:.1f}{width} %"


def _seeds_text(share: Interval) -> str:
    return " (one seed)" if share.n == 1 else f" ({share.n} seeds)"


class Correlation(NamedTuple):
    """Spearman's rank correlation of client rates and best server rates."""

    value: float
    probability: float  # of a correlation at least as negative in a random order
    rates: int  # the number of client rates

    @property
    def text(self) -> str:
        return f"{minus_text(self.value)}, p = {self.probability:.3f}"


def judge_inverse_relation(correlation: Correlation | None, obstacle: str, method: str) -> Verdict:
    """Judge "best client and server rates are inversely related" by the rank correlation of a method.

    `obstacle` is a reason why the best rates say nothing, or "". The verdict is not corrected for the number
    of tests.
    """
    if correlation is None:
        return not_run(f"trials of {METHOD_NAMES[method]}", 0, 1)
    reason = (
        f"{METHOD_NAMES[method]}: rank correlation {minus_text(correlation.value)} over {correlation.rates} "
        f"client rates, p = {correlation.probability:.3f}"
    )
    if obstacle:
        return Verdict(NOT_SHOWN, f"{reason}; {obstacle}")
    return Verdict(WEAKER if correlation.probability <= MAX_PROBABILITY else NOT_SHOWN, reason)


def judge_stability(
    spans: Mapping[str, float],
    at_edge: Collection[str],
    correlations: Mapping[str, Correlation | None],
) -> Verdict:
    """Judge "the best server rate of adaptive methods is more stable as the client rate varies".

    `spans` are the ranges of log10 of the best server rates. Methods in `at_edge` have a best rate at the
    edge of the grid, so their true range may be larger. `correlations` are those of the adaptive methods; a
    clear inverse relation is not stable.
    """
    adaptive = tuple(correlations)
    missing = {*adaptive, *NON_ADAPTIVE} - set(spans)
    if missing:
        return not_run(f"trials of {names_text(missing)}", len(spans), len(adaptive) + len(NON_ADAPTIVE))
    reason = "Range of log10 of the best server rates: " + ", ".join(
        f"{METHOD_NAMES[method]} {spans[method]:g}" for method in (*adaptive, *NON_ADAPTIVE)
    )
    known = {method: found for method, found in correlations.items() if found}
    if known:
        reason += "; rank correlations: "
        reason += ", ".join(f"{METHOD_NAMES[m]} {found.text}" for m, found in known.items())
    if at_edge:
        reason += "; a best rate is at the edge of the grid for " + names_text(set(at_edge))
    largest, smallest = max(spans[m] for m in adaptive), min(spans[m] for m in NON_ADAPTIVE)
    is_inverse = any(found.probability <= MAX_PROBABILITY for found in known.values())
    if largest <= MAX_SPAN_SHARE * smallest and not is_inverse:
        return Verdict(WEAKER, reason)
    return Verdict(NOT_SHOWN, reason)
