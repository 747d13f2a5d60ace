"""The verdict on each claim: rules with thresholds.

The first thresholds were committed on 2026-11-16 (e74510b), when the first grid of `so_lr` and short runs on
Shakespeare and digits were known. Those that came later have their date below. Reviews changed some rules:

- 2026-11-17: one seed supports "holds weaker" at most, and contradicts nothing. An inverse relation is not
  shown if best rates are at the edge of a grid or train nothing. "Easier to tune" counts trials that learn.
  "At least as good" compares with FedAvgM too.
- 2026-11-18: "robust to tau" needs the share for both ways to select the rates, and does not judge the
  exception that the paper names. Checks of the software, which the paper does not claim, are "confirmed".
- 2026-11-18, second review: tau on Shakespeare is judged by the last evaluation. These runs have 100
  rounds, and a mean over all of them measures the start of training. "Easier to tune" is judged by good
  client rates for one server rate, close to the paper's words, on seeds that ran after this rule. The share
  of good trials, which was judged before ("holds weaker" on tags, opposite on digits), is only stated; with
  three seeds it would contradict the claim on digits. "Clearly beat" and "at least as good" compare with the
  better of FedAvg and FedAvgM everywhere.
- 2026-11-18, third review: our rates on synthetic tags are selected among the paper's rates too, as on real
  questions; margins over FedAvgM fell from 42 to 44 points to 29 to 31. "Many good client rates" holds weaker
  if another distance gives another verdict (digits: was "holds"). "All values of tau" needs the share for
  both ways to select the rates (Shakespeare, FedAdam: was "holds weaker", is "not shown here"), and judges
  FedAdagrad on tags. Rates at the edge of a grid allow "holds weaker" at most. The autoencoder is judged with
  several seeds at round 300, and at round 200 for "faster at the start"; seed 0 was known.
- 2026-11-18, fourth review, with all results known: results on synthetic data hold weaker at most (three were
  "holds"). The interval of a ratio of errors must be within the limit (two verdicts on the autoencoder were
  "holds weaker", now "not shown here"). The start of training on Shakespeare has a verdict, which is
  "contradicted". The window of "FedAdagrad is the fastest", until round 100, was chosen after its runs were
  known; the verdict also cites the evaluations until round 300.

Differences and values are fractions, as in run directories. A verdict always cites the number that decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fedopt.reports import Interval
from fedopt_paper.published import METHOD_NAMES

STATUSES = ("holds", "holds weaker", "not shown here", "contradicted", "not run yet", "measured", "confirmed")
HOLDS, WEAKER, NOT_SHOWN, CONTRADICTED, NOT_RUN, MEASURED, CONFIRMED = STATUSES
OPPOSITE = "; the direction is opposite, with one seed"
SYNTHETIC_DATA = "the data is synthetic"

NON_ADAPTIVE = ("fedavgm", "fedavg")  # the methods with which adaptive ones are compared

# "Clearly better": at least half of the margin that the paper prints. Our files are smaller than the paper's.
MIN_MARGIN_SHARE = 0.5
# "At least as good": at most half a point behind, the distance at which the paper still prints bold numbers.
COMPARABLE = 0.005
# The same for errors: at most 5 % larger. This rule was written on 2026-11-17 before its runs were read.
COMPARABLE_ERROR = 0.05
# "Many good client rates for one server rate": within two points of the best trial of all methods. Seed 0 was
# known when this rule was written on 2026-11-18; the other seeds were not.
NEAR_BEST = 0.02
MEASURE_SEED = 0
# "Robust to tau": tau = 1e-3 reaches 95 % of the result of the best tau.
ROBUST = 0.95
# "Inverse relation": largest one-sided probability of so strong a rank correlation in a random order, for one
# test. This rule was written on 2026-11-17.
MAX_PROBABILITY = 0.05
# "More stable": the best server rates span at most half of the range that those of FedAvg and FedAvgM span.
# This rule was written on 2026-11-17 before its trials were read.
MAX_SPAN_SHARE = 0.5
# "No difference": if both programs are equal, one of twenty 95 % intervals excludes 0 by chance.
# One of ten is allowed. This rule was written on 2026-11-17 before its runs.
MAX_EXCLUDED = 0.1
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


def judge_clear_margin(
    differences: Differences,
    paper: Mapping[str, float],
    reference: str = "fedavg",
    test: Mapping[str, float] | None = None,
) -> Verdict:
    """Judge "adaptive methods clearly beat the others" by differences to a method, ours and the paper's.

    `paper` are the paper's differences on validation data, `test` those on its test set, which are smaller.
    """
    known = {method: difference for method, difference in differences.items() if difference is not None}
    if len(known) < len(paper):
        return not_run(names_text(set(paper) - set(known)), len(known), len(paper))
    printed = {m: signed(paper[m]) + (f" (test {signed(test[m])})" if test else "") for m in paper}
    reason = "; ".join(f"{METHOD_NAMES[m]} {points_text(known[m])}, paper {printed[m]}" for m in paper)
    reason = f"Against {METHOD_NAMES[reference]}: {reason}"
    if any(upper(difference) < 0 for difference in known.values()):
        is_certain = all(has_several_seeds(difference) for difference in known.values())
        return Verdict(CONTRADICTED, reason) if is_certain else Verdict(NOT_SHOWN, reason + OPPOSITE)
    is_clear = all(known[method].mean >= MIN_MARGIN_SHARE * paper[method] for method in paper)
    if is_clear and all(has_several_seeds(d) and lower(d) > 0 for d in known.values()):
        return Verdict(HOLDS, reason)
    if all(lower(difference) > 0 for difference in known.values()):
        return Verdict(WEAKER, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_at_least_as_good(differences: Differences, reference: str) -> Verdict:
    """Judge "at least as good as non-adaptive methods" by the differences to the better of them."""
    known = {method: difference for method, difference in differences.items() if difference is not None}
    if len(known) < len(differences):
        return not_run(names_text(set(differences) - set(known)), len(known), len(differences))
    reason = "; ".join(
        f"{METHOD_NAMES[method]} − {METHOD_NAMES[reference]} {points_text(d)}" for method, d in known.items()
    )
    if any(upper(difference) < -COMPARABLE for difference in known.values()):
        is_certain = all(has_several_seeds(difference) for difference in known.values())
        return Verdict(CONTRADICTED, reason) if is_certain else Verdict(NOT_SHOWN, reason + OPPOSITE)
    if all(has_several_seeds(d) and lower(d) >= -COMPARABLE for d in known.values()):
        return Verdict(HOLDS, reason)
    if all(difference.mean >= -COMPARABLE for difference in known.values()):
        return Verdict(WEAKER, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_fastest(accuracies: Mapping[str, Sequence[float]], judged: str, early: int) -> Verdict:
    """Judge "this method converges faster" by the first `early` evaluations of all methods, one seed.

    The later evaluations are only stated.
    """
    if judged not in accuracies or len(accuracies) < 2:
        return not_run(METHOD_NAMES[judged], 0, 1)
    best = [max(values) for values in zip(*accuracies.values(), strict=True)]
    leads = [own >= other for own, other in zip(accuracies[judged], best, strict=True)]
    count = sum(leads[:early])
    reason = (
        f"{METHOD_NAMES[judged]} has the highest accuracy at {count} of the first {early} evaluations and at "
        f"{sum(leads)} of all {len(leads)} (one seed)"
    )
    return Verdict(WEAKER if count == early else NOT_SHOWN, reason)


def judge_errors(errors: Mapping[str, float], judged: Collection[str]) -> Verdict:
    """Judge "at least as good as non-adaptive methods" by mean squared errors of one seed."""
    needed = {*judged, *NON_ADAPTIVE}
    missing = needed - set(errors)
    if missing:
        return not_run(names_text(missing), len(needed) - len(missing), len(needed))
    reference = min(NON_ADAPTIVE, key=lambda method: errors[method])
    reason = "; ".join(
        f"{METHOD_NAMES[method]} {errors[method] * 1000:.2f}, {errors[method] / errors[reference]:.2f} times "
        f"the error of {METHOD_NAMES[reference]}"
        for method in judged
    )
    reason += " (MSE × 1000, one seed)"
    is_comparable = [errors[m] <= (1 + COMPARABLE_ERROR) * errors[reference] for m in judged]
    if all(is_comparable):
        return Verdict(WEAKER, reason)
    return Verdict(NOT_SHOWN, reason if any(is_comparable) else reason + OPPOSITE)


def judge_error_ratios(
    ratios: Differences, reference: str, at: str, limit: float = 1 + COMPARABLE_ERROR
) -> Verdict:
    """Judge "at least as good" by ratios of mean squared errors to those of another method, over seeds.

    `limit` is the largest ratio that agrees with the claim. With several seeds the whole interval decides.
    """
    known = {method: ratio for method, ratio in ratios.items() if ratio is not None}
    if len(known) < len(ratios):
        return not_run(names_text(set(ratios) - set(known)), len(known), len(ratios))
    reason = "; ".join(
        f"{METHOD_NAMES[method]} {ratio.mean:.2f}{_width(ratio)} times the error of {METHOD_NAMES[reference]}"
        for method, ratio in known.items()
    )
    seeds = min(ratio.n for ratio in known.values())
    reason += f" {at} ({'one seed' if seeds == 1 else f'{seeds} seeds'})"
    are_certain = all(has_several_seeds(ratio) for ratio in known.values())
    if all(upper(ratio) <= limit for ratio in known.values()):
        return Verdict(HOLDS if are_certain else WEAKER, reason)
    if any(lower(ratio) > limit for ratio in known.values()):
        return Verdict(CONTRADICTED, reason) if are_certain else Verdict(NOT_SHOWN, reason + OPPOSITE)
    undecided = "; the intervals do not decide" if are_certain else ""
    return Verdict(NOT_SHOWN, reason + undecided)


def limit_to_weaker(verdict: Verdict, limit: str) -> Verdict:
    """Return the verdict with a limit that it states, which allows "holds weaker" at most."""
    if verdict.status == NOT_RUN:
        return verdict
    status = WEAKER if verdict.status == HOLDS else verdict.status
    return Verdict(status, f"{verdict.reason}; {limit}")


def _width(ratio: Interval) -> str:
    return "" if ratio.half_width is None else f" ± {ratio.half_width:.2f}"


def judge_not_better(difference: Interval | None, what: str, rates: str = "") -> Verdict:
    """Judge "SCAFFOLD does not beat FedAvg" by its difference to FedAvg.

    `rates` are the rates of SCAFFOLD if they were not tuned like FedAvg's. SCAFFOLD then has a disadvantage,
    and the claim holds at most weaker.
    """
    if difference is None:
        return not_run(f"{what}, FedAvg or SCAFFOLD", 0, 1)
    reason = f"{what}: SCAFFOLD {points_text(difference)}" + (f" with {rates}" if rates else "")
    if upper(difference) <= COMPARABLE:
        return Verdict(WEAKER if rates or not has_several_seeds(difference) else HOLDS, reason)
    if lower(difference) > COMPARABLE:
        return Verdict(CONTRADICTED if has_several_seeds(difference) else NOT_SHOWN, reason)
    return Verdict(NOT_SHOWN, reason)


def judge_error_not_better(scaffold: Interval | None, fedavg: Interval | None, untrained: float) -> Verdict:
    """Judge "SCAFFOLD does not beat FedAvg" by mean squared errors of one seed with FedAvg's rates.

    `untrained` is the error of a model that has learned nothing. If SCAFFOLD is not below it, its rates do
    not fit, and nothing is shown.
    """
    if scaffold is None or fedavg is None:
        return not_run("FedAvg or SCAFFOLD", 0, 1)
    reason = (
        f"SCAFFOLD {scaffold.mean * 1000:.2f}, FedAvg {fedavg.mean * 1000:.2f} (MSE × 1000, one seed) with "
        "FedAvg's rates"
    )
    if scaffold.mean >= untrained:
        return Verdict(NOT_SHOWN, f"{reason}, with which SCAFFOLD does not train")
    is_worse = scaffold.mean >= (1 - COMPARABLE_ERROR) * fedavg.mean
    return Verdict(WEAKER if is_worse else NOT_SHOWN, reason)


def judge_decay(
    gains: Differences,
    gaps: Mapping[str, tuple[float, float]],
    centralized: str = "centralized training",
) -> Verdict:
    """Judge "decay helps and approaches centralized training".

    `gaps` are the distances to centralized training without and with decay. `centralized` names the
    centralized training from which distances are measured.
    """
    known = {method: gain for method, gain in gains.items() if gain is not None}
    results = min(len(known), len(gaps))
    if results < len(gains):
        return not_run("constant rate, decay or centralized training", results, len(gains))
    reason = ", ".join(f"{METHOD_NAMES[m]} {points_text(gain)}" for m, gain in known.items())
    texts = [f"{METHOD_NAMES[m]} {a * 100:.1f} → {b * 100:.1f}" for m, (a, b) in gaps.items()]
    reason += f"; points behind {centralized}, constant → decay: " + ", ".join(texts)
    if all(gain.mean >= MIN_GAIN and lower(gain) > 0 for gain in known.values()):
        is_closer = all(abs(after) < abs(before) for before, after in gaps.values())
        is_certain = all(has_several_seeds(gain) for gain in known.values())
        return Verdict(HOLDS if is_closer and is_certain else WEAKER, reason)
    if all(upper(gain) < 0 for gain in known.values()):
        is_certain = all(has_several_seeds(gain) for gain in known.values())
        return Verdict(CONTRADICTED, reason) if is_certain else Verdict(NOT_SHOWN, reason + OPPOSITE)
    return Verdict(NOT_SHOWN, reason)


def judge_repeatability(checksums: Mapping[str, list[str]], expected: int) -> Verdict:
    """Judge "the same command gives the same model" by the checksums of each case."""
    runs = sum(len(values) for values in checksums.values())
    if runs < expected:
        return Verdict(NOT_RUN, f"{runs} of {expected} runs")
    different = [case for case, values in checksums.items() if len(set(values)) > 1]
    reason = f"{runs} runs of {len(checksums)} tasks; tasks with different checksums: {len(different)}"
    return Verdict(CONTRADICTED if different else CONFIRMED, reason)


def judge_agreement(
    differences: Sequence[Interval | None], expected: int, others: str = "runs of the second implementation"
) -> Verdict:
    """Judge "the runs show no difference" by the intervals of the differences.

    None is a comparison in which one side diverged. It counts like an interval that excludes 0.
    """
    if len(differences) < expected:
        return not_run(others, len(differences), expected)
    known = [difference for difference in differences if difference is not None]
    excluded = len(differences) - len(known)
    excluded += sum(not abs(difference.mean) <= (difference.half_width or 0.0) for difference in known)
    reason = f"{excluded} of {len(differences)} intervals of the difference exclude 0"
    if known:
        largest = max(known, key=lambda difference: abs(difference.mean))
        widest = max(difference.half_width or 0.0 for difference in known)
        reason += f"; largest difference {points_text(largest)}, widest interval ± {widest * 100:.1f} points"
    return Verdict(CONFIRMED if excluded <= MAX_EXCLUDED * len(differences) else NOT_SHOWN, reason)


def has_several_seeds(difference: Interval) -> bool:
    """Whether there are several seeds. One seed supports "holds weaker" at most."""
    return difference.half_width is not None


def lower(difference: Interval) -> float:
    return difference.mean - (difference.half_width or 0.0)


def upper(difference: Interval) -> float:
    return difference.mean + (difference.half_width or 0.0)


def points_text(difference: Interval) -> str:
    """Format a difference in percentage points with its interval."""
    if difference.half_width is None:
        return f"{signed(difference.mean)} points (one seed)"
    return f"{signed(difference.mean)} ± {difference.half_width * 100:.1f} points ({difference.n} seeds)"


def signed(fraction: float) -> str:
    text = f"{fraction * 100:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def minus_text(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def names_text(methods: set[str]) -> str:
    return ", ".join(METHOD_NAMES[method] for method in METHOD_NAMES if method in methods)
