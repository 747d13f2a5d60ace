"""The verdicts for hand-made numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from claims.best_rates import _correlation
from claims.ease import count_client_rates, good_shares, mean_of_seeds, near_best_client_rates
from claims.results import EntryResult
from claims.rules import Verdict
from claims.scaffold import _is_lost
from claims.sweeps import TAG_TAUS, TEXT_TAUS
from claims.tau import _best_by_tau, _by_result
from claims.tuning_rules import Counts

from claims import rules, tuning_rules
from fedopt.reports import Interval, RateTrial, SeedGroup
from fedopt.runs.records import RunRecord
from fedopt_paper.published import ADAPTIVE

AHEAD = {"fedadam": 4, "fedyogi": 4, "fedavgm": 3, "fedavg": 2}  # numbers of good client rates
PAPER = {"fedadagrad": 0.371, "fedadam": 0.358, "fedyogi": 0.359}


def seeds(mean: float, half_width: float | None = 0.01) -> Interval:
    return Interval(mean, half_width, 1 if half_width is None else 3)


@pytest.mark.parametrize(
    ("difference", "status"),
    [
        (seeds(0.30), rules.HOLDS),  # more than half of the paper's margin
        (seeds(0.10), rules.WEAKER),  # certain, but less than half
        (seeds(0.30, None), rules.WEAKER),  # one seed
        (seeds(0.30, 0.40), rules.NOT_SHOWN),  # the interval contains 0
        (seeds(-0.05), rules.CONTRADICTED),
        (None, rules.NOT_RUN),
    ],
)
def test_clear_margin_needs_half_of_the_papers_margin(difference: Interval | None, status: str) -> None:
    verdict = rules.judge_clear_margin({**dict.fromkeys(PAPER, seeds(0.30)), "fedyogi": difference}, PAPER)
    assert verdict.status == status


@pytest.mark.parametrize(
    ("difference", "status"),
    [
        (seeds(0.002, 0.004), rules.HOLDS),  # the lower limit is above -0.5 points
        (seeds(0.002, None), rules.WEAKER),
        (seeds(0.002, 0.02), rules.WEAKER),
        (seeds(-0.010, 0.02), rules.NOT_SHOWN),
        (seeds(-0.010, 0.001), rules.CONTRADICTED),
        (seeds(-0.010, None), rules.NOT_SHOWN),  # one seed contradicts nothing
        (None, rules.NOT_RUN),
    ],
)
def test_half_a_point_behind_is_at_least_as_good(difference: Interval | None, status: str) -> None:
    assert rules.judge_at_least_as_good({"fedadam": difference}, "fedavg").status == status


@pytest.mark.parametrize(
    ("excluded", "known", "status"),
    [(0, 10, rules.CONFIRMED), (1, 10, rules.CONFIRMED), (2, 10, rules.NOT_SHOWN), (0, 9, rules.NOT_RUN)],
)
def test_one_of_ten_intervals_may_exclude_zero(excluded: int, known: int, status: str) -> None:
    differences = [seeds(0.02)] * excluded + [seeds(0.005)] * (known - excluded)
    assert rules.judge_agreement(differences, 10).status == status


def test_comparison_with_a_diverged_run_counts_as_a_difference() -> None:
    assert rules.judge_agreement([seeds(0.005)] * 9 + [None], 10).status == rules.CONFIRMED
    assert rules.judge_agreement([seeds(0.005)] * 8 + [None] * 2, 10).status == rules.NOT_SHOWN


@pytest.mark.parametrize(
    ("fedyogi", "status"),
    [(0.5, rules.WEAKER), (1.0, rules.WEAKER), (1.5, rules.NOT_SHOWN), (None, rules.NOT_RUN)],
)
def test_stable_rates_span_half_of_the_range_of_others(fedyogi: float | None, status: str) -> None:
    spans = {"fedadagrad": 0.0, "fedadam": 0.5, "fedyogi": fedyogi, "fedavgm": 2.0, "fedavg": 2.5}
    known = {method: span for method, span in spans.items() if span is not None}
    unrelated = dict.fromkeys(ADAPTIVE, tuning_rules.Correlation(-0.3, 0.3, 5))
    assert tuning_rules.judge_stability(known, (), unrelated).status == status


def test_rates_with_an_inverse_relation_are_not_stable() -> None:
    spans = {**dict.fromkeys(ADAPTIVE, 0.5), "fedavgm": 2.0, "fedavg": 2.5}
    related = {m: tuning_rules.Correlation(-0.9, 0.05 if m == "fedadam" else 0.3, 5) for m in ADAPTIVE}
    verdict = tuning_rules.judge_stability(spans, (), related)
    assert verdict.status == rules.NOT_SHOWN and "FedAdam −0.90, p = 0.050" in verdict.reason


@pytest.mark.parametrize(
    ("fedyogi", "status"),
    [(0.0010, rules.WEAKER), (0.00209, rules.WEAKER), (0.00211, rules.NOT_SHOWN), (None, rules.NOT_RUN)],
)
def test_error_may_be_five_percent_larger(fedyogi: float | None, status: str) -> None:
    errors = {"fedadam": 0.001, "fedyogi": fedyogi, "fedavgm": 0.002, "fedavg": 0.006}
    known = {method: error for method, error in errors.items() if error is not None}
    assert rules.judge_errors(known, ("fedadam", "fedyogi")).status == status


@pytest.mark.parametrize(
    ("difference", "status"),
    [
        (seeds(-0.02, 0.01), rules.HOLDS),
        (seeds(-0.02, None), rules.WEAKER),
        (seeds(0.00, 0.01), rules.NOT_SHOWN),
        (seeds(0.03, 0.01), rules.CONTRADICTED),
        (None, rules.NOT_RUN),
    ],
)
def test_scaffold_is_not_better_if_the_interval_ends_below_half_a_point(
    difference: Interval | None, status: str
) -> None:
    assert rules.judge_not_better(difference, "digits").status == status


def test_scaffold_with_rates_of_fedavg_supports_the_claim_weaker() -> None:
    assert rules.judge_not_better(seeds(-0.02, 0.01), "digits", "FedAvg's rates").status == rules.WEAKER


def test_good_client_rates_and_shares_are_counted_for_each_seed() -> None:
    """Seed 0: best 0.9, near 0.88, halfway from 0.1 is 0.5. Seed 1: best 0.8, near 0.78, halfway 0.45."""
    found = {
        0: {
            "fedadam": {1.0: {0.1: 0.9, 1.0: 0.88}, 0.1: {0.1: 0.5, 1.0: 0.2}},
            "fedavg": {1.0: {0.1: 0.4, 1.0: 0.89}},
        },
        1: {
            "fedadam": {1.0: {0.1: 0.7, 1.0: 0.8}, 0.1: {0.1: 0.0, 1.0: 0.2}},
            "fedavg": {1.0: {0.1: 0.5, 1.0: 0.79}},
        },
    }
    assert near_best_client_rates(found) == {"fedadam": {0: 2, 1: 1}, "fedavg": {0: 1, 1: 1}}
    assert good_shares(found, 0.1) == {"fedadam": [0.75, 0.5], "fedavg": [0.5, 1.0]}


@pytest.mark.parametrize(
    ("fedyogi", "status"),
    [
        ({0: 1, 1: 4, 2: 4}, rules.HOLDS),  # ahead in both new seeds; seed 0 chose the measure
        ({0: 5, 1: 4, 2: 3}, rules.WEAKER),  # a tie
        ({0: 5, 1: 3, 2: 2}, rules.NOT_SHOWN),
        ({0: 5, 1: 5, 2: 2}, rules.NOT_SHOWN),  # one new seed shows the opposite
        ({0: 4}, rules.NOT_SHOWN),  # no new seed
        ({0: 5, 1: 1, 2: 1}, rules.NOT_SHOWN),  # FedAdam is still ahead
    ],
)
def test_many_good_client_rates_are_judged_by_new_seeds(fedyogi: dict[int, int], status: str) -> None:
    counts = {"fedadam": {0: 4, 1: 5, 2: 5}, "fedyogi": fedyogi, "fedavgm": {0: 3, 1: 3, 2: 3}}
    counts["fedavg"] = {0: 2, 1: 2, 2: 2}
    verdict = tuning_rules.judge_good_client_rates(counts, {}, AHEAD, 5, ("fedadam", "fedyogi"))
    assert verdict.status == status and "FedAvgM 3" in verdict.reason
    del counts["fedavg"]
    verdict = tuning_rules.judge_good_client_rates(counts, {}, AHEAD, 5, ("fedadam", "fedyogi"))
    assert verdict.status == rules.NOT_RUN


def test_a_verdict_that_depends_on_the_way_to_count_holds_weaker() -> None:
    ahead = {"fedadam": {0: 4, 1: 4, 2: 4}, "fedavgm": {0: 3, 1: 3, 2: 3}, "fedavg": {0: 2, 1: 2, 2: 2}}
    equal = {**ahead, "fedavgm": ahead["fedadam"]}

    def judge(counts: Counts, others: Mapping[str, Counts], means: Mapping[str, int] = AHEAD) -> Verdict:
        return tuning_rules.judge_good_client_rates(counts, others, means, 5, ("fedadam",))

    assert judge(ahead, {"1 point": ahead}).status == rules.HOLDS
    verdict = judge(ahead, {"1 point": ahead, "3 points": equal})
    assert verdict.status == rules.WEAKER and verdict.reason.endswith("(3 points: not shown here)")
    verdict = judge(ahead, {}, {**AHEAD, "fedavgm": AHEAD["fedadam"]})
    assert verdict.status == rules.WEAKER and "averaged results: FedAdam 4" in verdict.reason
    assert judge(equal, {"3 points": ahead}).status == rules.NOT_SHOWN


def test_good_client_rates_of_the_mean_over_seeds() -> None:
    """The second client rate is 0.03 below the best in seed 0 and the best in seed 1."""
    found = {
        seed: {"fedadam": {0.1: {1.0: 0.96, 2.0: value}}, "fedavg": {1.0: {1.0: 0.9, 2.0: 0.1}}}
        for seed, value in ((0, 0.93), (1, 0.97))
    }
    assert near_best_client_rates(found) == {"fedadam": {0: 1, 1: 2}, "fedavg": {0: 0, 1: 0}}
    assert count_client_rates(mean_of_seeds(found, {0, 1})) == {"fedadam": 2, "fedavg": 0}
    assert count_client_rates(mean_of_seeds(found, {0})) == {"fedadam": 1, "fedavg": 0}


def test_fewer_good_client_rates_in_every_new_seed_contradict() -> None:
    counts = {"fedadam": {0: 5, 1: 1, 2: 1}, "fedavgm": {0: 1, 1: 2, 2: 3}, "fedavg": {0: 1, 1: 4, 2: 4}}
    verdict = tuning_rules.judge_good_client_rates(counts, {}, AHEAD, 5, ("fedadam",))
    assert verdict.status == rules.CONTRADICTED


def values_by_tau(at_1e3: float, others: float = 0.5, seeds: int = 1) -> dict[float, dict[int, float]]:
    """Return results by log10 of tau and seed. The best one is 1.0, at tau = 1e-5."""
    values = {-5.0: 1.0, -4.0: others, -3.0: at_1e3, -2.0: others, -1.0: others}
    return {tau: dict.fromkeys(range(seeds), value) for tau, value in values.items()}


@pytest.mark.parametrize(
    ("by_result", "by_loss", "status"),
    [(0.96, 0.97, rules.WEAKER), (0.94, 0.97, rules.NOT_SHOWN), (0.96, 0.94, rules.NOT_SHOWN)],
)
def test_small_differences_among_all_values_of_tau_for_both_selections(
    by_result: float, by_loss: float, status: str
) -> None:
    values = [values_by_tau(worst, 1.0) for worst in (by_result, by_loss)]
    verdict = tuning_rules.judge_small_differences(*values, "fedadam")
    assert verdict.status == status and "The worst tau (1e-3)" in verdict.reason
    del values[0][-2.0]
    assert tuning_rules.judge_small_differences(*values, "fedadam").status == rules.NOT_RUN


@pytest.mark.parametrize(
    ("share", "at_edge", "status"),
    [
        (0.96, [], rules.HOLDS),
        (0.96, [-1.0], rules.WEAKER),
        (0.94, [], rules.CONTRADICTED),
        (0.94, [-1.0], rules.NOT_SHOWN),
    ],
)
def test_several_seeds_decide_unless_best_rates_are_at_the_edge(
    share: float, at_edge: list[float], status: str
) -> None:
    values = values_by_tau(share, 1.0, seeds=3)
    assert tuning_rules.judge_robustness(values, values, at_edge, "fedadam").status == status
    assert tuning_rules.judge_small_differences(values, values, "fedadam", at_edge).status == status


def test_share_of_tau_is_paired_by_seed() -> None:
    """Seeds with results 0.5 and 1.0 have the same share, so its interval has no width."""
    values = {
        tau: {0: 0.5 * share, 1: share}
        for tau, share in zip(tuning_rules.TAUS, (1, 1, 0.96, 1, 1), strict=True)
    }
    verdict = tuning_rules.judge_robustness(values, values, [], "fedadam")
    assert verdict.status == rules.HOLDS and "96.0 ± 0.0 % of the best tau" in verdict.reason


@pytest.mark.parametrize(
    ("ratio", "width", "status"),
    [
        (0.9, 0.1, rules.HOLDS),
        (1.0, 0.1, rules.NOT_SHOWN),  # the interval includes 1.05
        (0.9, None, rules.WEAKER),
        (1.2, 0.1, rules.CONTRADICTED),
        (1.2, 0.2, rules.NOT_SHOWN),
        (1.2, None, rules.NOT_SHOWN),
    ],
)
def test_ratios_of_errors_over_seeds(ratio: float, width: float | None, status: str) -> None:
    interval = Interval(ratio, width, 1 if width is None else 3)
    verdict = rules.judge_error_ratios({"fedadam": interval}, "fedavgm", "at round 300")
    assert verdict.status == status and "times the error of FedAvgM at round 300" in verdict.reason
    missing = {"fedadam": interval, "fedyogi": None}
    assert rules.judge_error_ratios(missing, "fedavgm", "").status == rules.NOT_RUN


def test_a_stated_limit_allows_holds_weaker_at_most() -> None:
    for status, limited in ((rules.HOLDS, rules.WEAKER), (rules.CONTRADICTED, rules.CONTRADICTED)):
        assert rules.limit_to_weaker(rules.Verdict(status, "a"), "b") == (limited, "a; b")
    assert rules.limit_to_weaker(rules.Verdict(rules.NOT_RUN, "a"), "b") == (rules.NOT_RUN, "a")


@pytest.mark.parametrize(("error", "status"), [(0.0048, rules.WEAKER), (0.0047, rules.NOT_SHOWN)])
def test_scaffold_is_not_better_if_its_error_is_at_most_five_percent_smaller(
    error: float, status: str
) -> None:
    fedavg = seeds(0.005, None)
    assert rules.judge_error_not_better(seeds(error, None), fedavg, 0.006).status == status
    assert rules.judge_error_not_better(seeds(0.006, None), fedavg, 0.006).status == rules.NOT_SHOWN
    assert rules.judge_error_not_better(None, fedavg, 0.006).status == rules.NOT_RUN


def test_fastest_has_the_highest_accuracy_at_every_evaluation() -> None:
    others = {"fedavg": [0.3, 0.4, 0.6], "fedavgm": [0.35, 0.42, 0.5]}
    judge = rules.judge_fastest
    verdict = judge({**others, "fedadagrad": [0.4, 0.5, 0.55]}, "fedadagrad", 2)  # behind later
    assert (
        verdict.status == rules.WEAKER and "2 of the first 2 evaluations and at 2 of all 3" in verdict.reason
    )
    assert judge({**others, "fedadagrad": [0.34, 0.5, 0.7]}, "fedadagrad", 2).status == rules.NOT_SHOWN
    assert judge(others, "fedadagrad", 2).status == rules.NOT_RUN


@pytest.mark.parametrize(
    ("by_result", "by_loss", "status"),
    [(0.96, 0.97, rules.WEAKER), (0.92, 0.97, rules.NOT_SHOWN), (0.96, 0.93, rules.NOT_SHOWN)],
)
def test_robust_means_95_percent_of_the_best_tau_for_both_selections(
    by_result: float, by_loss: float, status: str
) -> None:
    verdict = tuning_rules.judge_robustness(
        values_by_tau(by_result), values_by_tau(by_loss), [-1.0], "fedadam"
    )
    assert verdict.status == status
    assert f"{by_result * 100:.1f} % of the best tau (1e-5: 100.0 %)" in verdict.reason
    assert f"{by_loss * 100:.1f} % with the rates of the smallest training loss" in verdict.reason
    assert verdict.reason.endswith("at the edge of the grid for tau = 1e-1")


def test_exception_of_the_paper_is_measured() -> None:
    verdict = tuning_rules.judge_robustness(values_by_tau(0.5), values_by_tau(0.5), [], "fedadam", True)
    assert verdict.status == rules.MEASURED and "the worst tau has 50.0 %" in verdict.reason


def test_missing_tau_is_not_judged() -> None:
    known = values_by_tau(1.0)
    del known[-2.0]
    assert tuning_rules.judge_robustness(known, known, [], "fedadam").status == rules.NOT_RUN


def test_one_seed_in_the_opposite_direction_is_named() -> None:
    """One seed contradicts nothing, but a reader must see the direction."""
    verdicts = [
        rules.judge_clear_margin({"fedadam": seeds(-0.01, None)}, {"fedadam": 0.3}),
        rules.judge_errors({"fedadam": 3.0, "fedavgm": 1.0, "fedavg": 2.0}, ("fedadam",)),
        rules.judge_decay({"fedadam": seeds(-0.01, None)}, {"fedadam": (0.01, 0.02)}),
        rules.judge_at_least_as_good({"fedadam": seeds(-0.01, None)}, "fedavg"),
    ]
    for verdict in verdicts:
        assert verdict.status == rules.NOT_SHOWN and verdict.reason.endswith("opposite, with one seed")


@pytest.mark.parametrize(
    ("probability", "obstacle", "status"),
    [
        (0.01, "", rules.WEAKER),
        (0.20, "", rules.NOT_SHOWN),
        (0.01, "best rates mostly at the edge of the grid", rules.NOT_SHOWN),
    ],
)
def test_inverse_relation_needs_a_strong_correlation_and_rates_that_decide(
    probability: float, obstacle: str, status: str
) -> None:
    correlation = tuning_rules.Correlation(-0.9, probability, 6)
    assert tuning_rules.judge_inverse_relation(correlation, obstacle, "fedadam").status == status
    assert tuning_rules.judge_inverse_relation(None, "", "fedadam").status == rules.NOT_RUN


def test_probability_of_a_rank_correlation_counts_all_orders() -> None:
    """Of the six orders of three rates, one is completely reversed."""
    found = _correlation({0.0: 1.0, 1.0: 0.5, 2.0: 0.0})
    assert found is not None
    assert (found.value, found.probability) == (pytest.approx(-1.0), pytest.approx(1 / 6))


@pytest.mark.parametrize(
    ("gain", "gap", "status"),
    [
        (seeds(0.006, 0.002), (0.02, 0.01), rules.HOLDS),
        (seeds(0.006, None), (0.02, 0.01), rules.WEAKER),  # one seed
        (seeds(0.006, 0.002), (0.01, 0.02), rules.WEAKER),  # not closer to centralized training
        (seeds(0.006, 0.010), (0.02, 0.01), rules.NOT_SHOWN),  # the interval contains 0
        (seeds(-0.01, 0.002), (0.01, 0.02), rules.CONTRADICTED),
        (seeds(0.001, 0.0005), (0.02, 0.01), rules.NOT_SHOWN),
    ],
)
def test_decay_must_gain_two_tenths_and_approach_centralized(
    gain: Interval, gap: tuple[float, float], status: str
) -> None:
    verdict = rules.judge_decay({"fedadam": gain}, {"fedadam": gap})
    assert verdict.status == status


def test_decay_is_not_judged_without_centralized_training() -> None:
    gain = {"fedadam": seeds(0.006, 0.002)}
    assert rules.judge_decay(gain, {}).status == rules.NOT_RUN
    assert rules.judge_decay({"fedadam": None}, {"fedadam": (0.02, 0.01)}).status == rules.NOT_RUN


def test_sweeps_of_other_methods_are_not_needed_for_a_method() -> None:
    taus = [f"shakespeare/tau/fedyogi/tau{tau}" for tau in (-5, -4, -3, -2, -1)]
    done = {name: EntryResult(name, "", [], True, None, []) for name in taus}
    assert TEXT_TAUS.is_complete(done, "fedyogi")
    assert not TEXT_TAUS.is_complete(done, "fedadam") and not TEXT_TAUS.is_complete(done)
    assert not TAG_TAUS.is_complete(done, "fedyogi")  # one entry has the trials of all methods


@pytest.mark.parametrize(
    ("checksums", "status"),
    [
        (["a", "a", "a"], rules.CONFIRMED),
        (["a", "a", "b"], rules.CONTRADICTED),
        (["a", "a"], rules.NOT_RUN),
    ],
)
def test_repeatability_needs_equal_checksums_of_all_runs(checksums: list[str], status: str) -> None:
    assert rules.judge_repeatability({"digits": checksums}, 3).status == status


def rate_trial(tau: float, server_lr: float, value: float | None) -> RateTrial:
    """A trial that is done, or has diverged if it has no value."""
    interval = None if value is None else Interval(value, None, 1)
    info = {"seed": 0, "status": "done" if value is not None else "diverged", "value": value}
    group = SeedGroup("fedadam", (RunRecord(Path(), info, {}, [], []),))
    return RateTrial(1.0, server_lr, tau, group, interval, None, None)


def test_tau_with_which_all_rates_diverge_counts_as_zero() -> None:
    trials = [rate_trial(1e-5, 0.1, None), rate_trial(1e-5, 0.01, None)]
    trials += [rate_trial(1e-3, 0.1, 0.5), rate_trial(1e-3, 0.01, None)]
    best = _best_by_tau(trials, _by_result)
    assert {tau: trial.result for tau, trial in best.items()} == {-5.0: None, -3.0: 0.5}


def test_trial_with_a_huge_finite_loss_is_lost() -> None:
    losses = [{"round": 10, "rounds": 10, "loss": 5e27}]
    trial = rate_trial(1e-3, 0.1, 0.1)
    lost = trial.group.records[0]._replace(train=losses)
    assert not _is_lost(trial)
    assert _is_lost(trial._replace(group=trial.group._replace(records=(lost,))))
