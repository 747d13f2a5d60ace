"""The verdict on each claim: rules with thresholds.

The thresholds were written down on 2026-11-16 before the results that they judge. Of these, only parts of the
first grid (`so_lr/grid_coarse`) were known. One rule was added afterwards: best rates at the edge of a grid
make a verdict weaker. Differences and values are fractions, as in run directories. A verdict always cites the
number that decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from fedopt.analysis.ease_of_tuning import EaseOfTuning
from fedopt.analysis.seeds import Interval
from fedopt.reproduction.published import METHOD_NAMES

HOLDS, WEAKER, NOT_SHOWN, CONTRADICTED, NOT_RUN = (
    "holds",
    "holds weaker",
    "not shown here",
    "contradicted",
    "not run yet",
)

# "Clearly better": at least half of the margin that the paper prints. Our files are smaller than the paper's.
MIN_MARGIN_SHARE = 0.5
# "At least as good": at most half a point behind, the distance at which the paper still prints bold numbers.
COMPARABLE = 0.005
# "Easier to tune": one of four trials beats the best that FedAvg reaches with any rates of the grid.
MIN_GOOD_SHARE = 0.25
# "Robust to tau": tau = 1e-3 reaches 95 % of the result of the best tau; below 90 % the claim is wrong.
ROBUST, NOT_ROBUST = 0.95, 0.90
# "Inverse relation": rank correlation of the client rate and the best server rate.
STRONG_CORRELATION = -0.5
# "Decay helps": the smallest gain that the paper prints is 0.2 points (FedAdagrad).
MIN_GAIN = 0.002


class Verdict(NamedTuple):
    """A verdict and the sentence with the number that decides."""

    status: str
    reason: str


Differences = Mapping[str, Interval | None]  # by method; None if the runs are missing


def not_run(missing: str, known: int, needed: int) -> Verdict:
    """Return the verdict on a claim whose runs are missing."""
    return Verdict(NOT_RUN, f"{known} of {needed} results; missing: {missing}")


def judge_clear_margin(differences: Differences, paper: Mapping[str, float]) -> Verdict:
    """Judge "adaptive methods clearly beat FedAvg" by differences to FedAvg and the paper's differences."""
    known = {method: difference for method, difference in differences.items() if difference is not None}
    if len(known) < len(paper):
        return not_run(_names(set(paper) - set(known)), len(known), len(paper))
    reason = "; ".join(
        f"{METHOD_NAMES[method]} {_points(known[method])}, paper {_signed(paper[method])}" for method in paper
    )
    if any(_upper(difference) < 0 for difference in known.values()):
        return Verdict(CONTRADICTED, reason)
    is_clear = all(known[method].mean >= MIN_MARGIN_SHARE * paper[method] for method in paper)
    if is_clear and all(_is_certain(d) and _lower(d) > 0 for d in known.values()):
        return Verdict(HOLDS, reason)
    if all(_lower(difference) > 0 for difference in known.values()):
        return Verdict(WEAKER, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_at_least_as_good(differences: Differences) -> Verdict:
    """Judge "at least as good as FedAvg" by the differences to FedAvg."""
    known = {method: difference for method, difference in differences.items() if difference is not None}
    if len(known) < len(differences):
        return not_run(_names(set(differences) - set(known)), len(known), len(differences))
    reason = "; ".join(f"{METHOD_NAMES[method]} {_points(d)}" for method, d in known.items())
    if any(_upper(difference) < -COMPARABLE for difference in known.values()):
        is_certain = all(_is_certain(difference) for difference in known.values())
        return Verdict(CONTRADICTED if is_certain else NOT_SHOWN, reason)
    if all(_is_certain(d) and _lower(d) >= -COMPARABLE for d in known.values()):
        return Verdict(HOLDS, reason)
    if all(difference.mean >= -COMPARABLE for difference in known.values()):
        return Verdict(WEAKER, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_not_better(difference: Interval | None, what: str) -> Verdict:
    """Judge "SCAFFOLD does not beat FedAvg" by its difference to FedAvg."""
    if difference is None:
        return not_run(f"{what}, FedAvg or SCAFFOLD", 0, 1)
    reason = f"{what}: SCAFFOLD {_points(difference)}"
    if _upper(difference) <= COMPARABLE:
        return Verdict(HOLDS if _is_certain(difference) else WEAKER, reason)
    if _lower(difference) > COMPARABLE:
        return Verdict(CONTRADICTED if _is_certain(difference) else NOT_SHOWN, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_ease_of_tuning(measures: Mapping[str, EaseOfTuning], adaptive: tuple[str, ...]) -> Verdict:
    """Judge "easier to tune" by the shares of trials that beat the best trial of FedAvg."""
    shares = {method: ease.beats_reference_share for method, ease in measures.items()}
    needed = (*adaptive, "fedavgm")
    if any(shares.get(method) is None for method in needed):
        return not_run("trials of the heat maps", 0, 1)
    known = {method: share for method in needed if (share := shares[method]) is not None}
    reason = "Share of trials above the best of FedAvg: " + ", ".join(
        f"{METHOD_NAMES[method]} {share:.0%}".replace("%", " %") for method, share in known.items()
    )
    other = known.pop("fedavgm")
    if all(share > other for share in known.values()):
        return Verdict(HOLDS if min(known.values()) >= MIN_GOOD_SHARE else WEAKER, reason)
    return Verdict(CONTRADICTED if all(share < other for share in known.values()) else NOT_SHOWN, reason)


def judge_robustness(by_tau: Mapping[float, float], method: str) -> Verdict:
    """Judge "robust to tau" by the best result for each log10 of tau."""
    if not {-5.0, -4.0, -3.0, -2.0, -1.0} <= set(by_tau):
        return not_run(f"values of tau for {METHOD_NAMES[method]}", len(by_tau), 5)
    best = max(by_tau, key=lambda tau: by_tau[tau])
    share = by_tau[-3.0] / by_tau[best]
    reason = (
        f"{METHOD_NAMES[method]} with tau = 1e-3 reaches {by_tau[-3.0] * 100:.1f} %, "
        f"{share * 100:.0f} % of the best ({by_tau[best] * 100:.1f} % with tau = 1e{best:g})"
    )
    if share >= ROBUST:
        return Verdict(HOLDS, reason)
    return Verdict(WEAKER if share >= NOT_ROBUST else CONTRADICTED, reason)


def judge_inverse_relation(correlations: Mapping[str, float | None], at_edge: Collection[str]) -> Verdict:
    """Judge "best client and server rates are inversely related" by rank correlations.

    `at_edge` are methods whose best server rates are mostly at the edge of the grid. The true best rates may
    lie outside, so the claim holds at most weaker.
    """
    known = {method: value for method, value in correlations.items() if value is not None}
    if len(known) < len(correlations):
        return not_run("trials of the heat maps", len(known), len(correlations))
    reason = "Rank correlation: " + ", ".join(f"{METHOD_NAMES[m]} {_minus(v)}" for m, v in known.items())
    if at_edge:
        reason += f"; best rates mostly at the edge of the grid: {_names(set(at_edge))}"
    if all(value <= STRONG_CORRELATION for value in known.values()):
        return Verdict(WEAKER if at_edge else HOLDS, reason)
    if all(value < 0 for value in known.values()):
        return Verdict(WEAKER, reason)
    positive = sum(value > 0 for value in known.values())
    return Verdict(CONTRADICTED if positive > len(known) / 2 else NOT_SHOWN, reason)


def judge_decay(gains: Differences, gaps: Mapping[str, tuple[float, float]]) -> Verdict:
    """Judge "decay helps and approaches centralized training".

    `gaps` are the distances to centralized training without and with decay.
    """
    known = {method: gain.mean for method, gain in gains.items() if gain is not None}
    if len(known) < len(gains) or len(gaps) < len(gains):
        return not_run("constant rate, decay or centralized training", len(known), len(gains))
    reason = ", ".join(f"{METHOD_NAMES[m]} {_signed(gain)} points" for m, gain in known.items())
    if all(gain >= MIN_GAIN for gain in known.values()):
        is_closer = all(abs(after) < abs(before) for before, after in gaps.values())
        return Verdict(HOLDS if is_closer else WEAKER, reason)
    if all(gain < 0 for gain in known.values()):
        return Verdict(CONTRADICTED, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_repeatability(checksums: Mapping[str, list[str]], expected: int) -> Verdict:
    """Judge "the same command gives the same model" by the checksums of each case."""
    runs = sum(len(values) for values in checksums.values())
    if runs < expected:
        return Verdict(NOT_RUN, f"{runs} of {expected} runs")
    different = [case for case, values in checksums.items() if len(set(values)) > 1]
    reason = f"{runs} runs of {len(checksums)} tasks; cases with different checksums: {len(different)}"
    return Verdict(CONTRADICTED if different else HOLDS, reason)


def _is_certain(difference: Interval) -> bool:
    """Whether there are several seeds. One seed supports "holds weaker" at most."""
    return difference.half_width is not None


def _lower(difference: Interval) -> float:
    return difference.mean - (difference.half_width or 0.0)


def _upper(difference: Interval) -> float:
    return difference.mean + (difference.half_width or 0.0)


def _points(difference: Interval) -> str:
    """Format a difference in percentage points with its interval."""
    if difference.half_width is None:
        return f"{_signed(difference.mean)} points (one seed)"
    return f"{_signed(difference.mean)} ± {difference.half_width * 100:.1f} points ({difference.n} seeds)"


def _signed(fraction: float) -> str:
    return f"{fraction * 100:+.1f}".replace("-", "−")


def _minus(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _names(methods: set[str]) -> str:
    return ", ".join(METHOD_NAMES[method] for method in METHOD_NAMES if method in methods)
