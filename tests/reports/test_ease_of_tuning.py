"""Ease of tuning: trials near the best over all methods, trials better than FedAvg, sorted trials."""

from __future__ import annotations

from pathlib import Path

from written import write_trial

from fedopt.reports.grids import (
    MethodTrials,
    Tolerance,
    find_grids,
    grid_ease_of_tuning,
    measure_ease_of_tuning,
)

POINT = Tolerance(0.01, relative=False)


def test_uniformly_bad_method_is_not_easy_to_tune() -> None:
    """All trials of FedAvg are near its own best, and all of FedAdagrad beat them."""
    fedavg = MethodTrials("fedavg", "fedavg", [0.10, 0.10, 0.105, 0.10, None])
    adagrad = MethodTrials("fedadagrad", "fedadagrad", [0.20, 0.40, 0.80, 0.795, 0.30])
    worse, better = measure_ease_of_tuning([fedavg, adagrad], True, POINT)
    assert (worse.near_best, worse.total, worse.near_best_share) == (0, 5, 0.0)
    assert (better.near_best, better.total, better.near_best_share) == (2, 5, 0.4)
    assert (worse.beats_reference, worse.beats_reference_share) == (None, None)
    assert (better.beats_reference, better.beats_reference_share) == (5, 1.0)


def test_lower_metrics_and_relative_tolerances() -> None:
    fedavg = MethodTrials("fedavg", "fedavg", [0.020, 0.030])
    adam = MethodTrials("fedadam", "fedadam", [0.025, 0.020, 0.0219, 0.018])
    _, found = measure_ease_of_tuning([fedavg, adam], False, Tolerance(0.1, relative=True))
    assert found.near_best == 1  # at most 0.0198
    assert found.beats_reference == 1  # an equal value does not beat it
    assert found.sorted_values == (0.018, 0.020, 0.0219, 0.025)


def test_sorted_curve_counts_diverged_trials_in_the_share() -> None:
    (found,) = measure_ease_of_tuning([MethodTrials("a", "a", [0.5, None, 0.9, None])], True, POINT)
    assert found.sorted_curve() == [(0.25, 0.9), (0.5, 0.5)]
    assert found.beats_reference is None  # there is no FedAvg


def test_methods_without_a_result_have_no_trial_near_the_best() -> None:
    none, empty = measure_ease_of_tuning(
        [MethodTrials("a", "a", [None, None]), MethodTrials("b", "b", [])], True, POINT
    )
    assert (none.near_best, none.near_best_share, none.sorted_values) == (0, 0.0, ())
    assert empty.near_best_share is None


def test_grids_of_recorded_trials_are_measured(tmp_path: Path) -> None:
    trials = {
        "fedavg": {0.1: 0.50, 1.0: 0.60},
        "fedadam": {0.1: 0.70, 1.0: 0.695, 10.0: 0.55, 100.0: None},
    }
    records = [
        write_trial(tmp_path / f"{name}{rate}", name, (rate, 1.0), v, status="done" if v else "diverged")
        for name, values in trials.items()
        for rate, v in values.items()
    ]
    records.append(write_trial(tmp_path / "running", "fedadam", (0.01, 1.0), 0.9, status="running"))
    fedavg, fedadam = grid_ease_of_tuning(find_grids(records), "accuracy")
    assert (fedavg.method, fedavg.near_best, fedavg.total) == ("fedavg", 0, 2)
    assert (fedadam.near_best, fedadam.beats_reference, fedadam.total) == (2, 2, 4)
    assert fedadam.sorted_values == (0.70, 0.695, 0.55)
    assert grid_ease_of_tuning([], "accuracy") == []
