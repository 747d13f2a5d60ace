"""The verdicts for hand-made numbers."""

from __future__ import annotations

import pytest

from claims import rules
from fedopt.analysis.ease_of_tuning import EaseOfTuning
from fedopt.analysis.seeds import Interval

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
    assert rules.judge_at_least_as_good({"fedadam": difference}).status == status


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


def ease(beats: int | None) -> EaseOfTuning:
    return EaseOfTuning("", 20, 0, beats, ())


@pytest.mark.parametrize(
    ("adaptive", "momentum", "status"),
    [
        (10, 1, rules.HOLDS),
        (4, 1, rules.WEAKER),  # a fifth of the trials
        (1, 10, rules.CONTRADICTED),
        (5, 5, rules.NOT_SHOWN),
        (5, None, rules.NOT_RUN),
    ],
)
def test_easier_means_a_quarter_of_the_trials_and_more_than_fedavgm(
    adaptive: int, momentum: int | None, status: str
) -> None:
    measures = {"fedadam": ease(adaptive), "fedavgm": ease(momentum), "fedavg": ease(None)}
    assert rules.judge_ease_of_tuning(measures, ("fedadam",)).status == status


@pytest.mark.parametrize(
    ("at_1e3", "status"), [(0.96, rules.HOLDS), (0.92, rules.WEAKER), (0.80, rules.CONTRADICTED)]
)
def test_robust_means_95_percent_of_the_best_tau(at_1e3: float, status: str) -> None:
    by_tau = {-5.0: 1.0, -4.0: 0.5, -3.0: at_1e3, -2.0: 0.5, -1.0: 0.5}
    verdict = rules.judge_robustness(by_tau, "fedadam")
    assert verdict.status == status
    assert f"{at_1e3:.0%}".removesuffix("%") in verdict.reason and "1e-5" in verdict.reason


@pytest.mark.parametrize(
    ("correlations", "status"),
    [
        ((-0.9, -0.5), rules.HOLDS),
        ((-0.9, -0.2), rules.WEAKER),
        ((-0.9, 0.1), rules.NOT_SHOWN),
        ((0.3, 0.1), rules.CONTRADICTED),
        ((-0.9, None), rules.NOT_RUN),
    ],
)
def test_inverse_relation_is_a_negative_rank_correlation(
    correlations: tuple[float, float | None], status: str
) -> None:
    by_method = dict(zip(("fedavg", "fedadam"), correlations, strict=True))
    assert rules.judge_inverse_relation(by_method, []).status == status


def test_best_rates_at_the_edge_of_the_grid_weaken_the_inverse_relation() -> None:
    verdict = rules.judge_inverse_relation({"fedavg": -0.9, "fedadam": -0.9}, ["fedadam"])
    assert verdict.status == rules.WEAKER
    assert verdict.reason.endswith("edge of the grid: FedAdam")


@pytest.mark.parametrize(
    ("gain", "gap", "status"),
    [
        (0.006, (0.02, 0.01), rules.HOLDS),
        (0.006, (0.01, 0.02), rules.WEAKER),  # better, but not closer to centralized training
        (-0.01, (0.01, 0.02), rules.CONTRADICTED),
        (0.001, (0.02, 0.01), rules.NOT_SHOWN),
    ],
)
def test_decay_must_gain_two_tenths_and_approach_centralized(
    gain: float, gap: tuple[float, float], status: str
) -> None:
    verdict = rules.judge_decay({"fedadam": Interval(gain, None, 1)}, {"fedadam": gap})
    assert verdict.status == status


@pytest.mark.parametrize(
    ("checksums", "status"),
    [
        (["a", "a", "a"], rules.HOLDS),
        (["a", "a", "b"], rules.CONTRADICTED),
        (["a", "a"], rules.NOT_RUN),
    ],
)
def test_repeatability_needs_equal_checksums_of_all_runs(checksums: list[str], status: str) -> None:
    assert rules.judge_repeatability({"digits": checksums}, 3).status == status
