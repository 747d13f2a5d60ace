"""The summaries of a comparison: means over seeds, target, ranking and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from written import MB, write_lines, write_run, write_seeds, write_trial

from fedopt.errors import ConfigError, UserError
from fedopt.intervals import Interval
from fedopt.reports.summary import Summary, compare_runs, confirmed_round, final_measure
from fedopt.reports.tables import comparison_columns
from fedopt.runs.records import RunRecord, read_run

T_2 = 4.302653  # quantile of Student's t for three seeds, from a table
FIRST, NEAR, FAR = (0.70, 0.72, 0.74), (0.71, 0.70, 0.745), (0.60, 0.62, 0.64)


def mean(summary: Summary, name: str) -> float | None:
    interval = summary.interval(name)
    return None if interval is None else interval.mean


def test_summaries_have_the_numbers_computed_by_hand(three: list[RunRecord]) -> None:
    comparison = compare_runs(three)
    best, second, _ = comparison.summaries
    assert comparison.target == 0.765  # 0.85 less 10 %
    assert [s.label for s in comparison.summaries] == ["fedyogi", "scaffold", "fedavg"]
    numbers = [mean(best, name) for name in ("last_value", "value", "train_loss", "seconds")]
    assert numbers == [0.85, 0.80, 0.5, 4.0]
    assert mean(second, "train_loss") == pytest.approx(25 / 48)  # not recorded: mean of 1, 1/2, 1/3, 1/4
    names = ("rounds_to_target", "bytes_to_target", "bytes_total")
    assert [tuple(mean(s, name) for name in names) for s in comparison.summaries] == [
        (2, 20 * MB, 40 * MB),
        (None, None, 80 * MB),  # reached only at the last evaluation, so not confirmed
        (None, None, 40 * MB),
    ]
    assert best.result == Interval(0.85, None, 1)  # one seed has no interval


def test_last_evaluation_leads_unless_the_papers_rule_is_requested(tmp_path: Path) -> None:
    """As in a short demo: the mean over all rounds prefers a fast start, the last evaluation does not."""
    fast = write_run(tmp_path / "a", "fedavg", (0.1, 0.40, 0.41), value=0.405)
    late = write_run(tmp_path / "b", "fedadam", (0.1, 0.20, 0.50), value=0.35)
    assert [s.label for s in compare_runs([fast, late]).summaries] == ["fedadam", "fedavg"]
    by_paper = compare_runs([fast, late], rule="paper")
    assert [s.label for s in by_paper.summaries] == ["fedavg", "fedadam"]
    assert (by_paper.best.result, by_paper.target) == ((0.405, None, 1), 0.365)  # 0.3645, three digits


@pytest.mark.parametrize(
    ("values", "round"),
    [
        ((0.1, 0.6, 0.4, 0.6, 0.7), 6),  # round 2 is not confirmed
        ((0.1, 0.5, 0.5, 0.2, 0.2), 2),  # exactly the target
        ((0.1, 0.2, 0.3, 0.4, 0.9), None),  # nothing follows the last evaluation
    ],
)
def test_target_is_reached_if_the_following_evaluation_confirms_it(
    tmp_path: Path, values: tuple[float, ...], round: int | None
) -> None:
    assert confirmed_round(write_run(tmp_path / "run", values=values), 0.5) == round


def test_lower_metric_is_ranked_ascending_and_reaches_the_target_from_above(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"metric": "mse", "better": "lower"}
    records = [
        write_run(tmp_path / "a", "fedavg", (0.1, 0.021, 0.0187, 0.0186), value=0.0204, **shared),
        write_run(tmp_path / "b", "fedadam", (0.1, 0.0187, 0.0175, 0.017), value=0.018, **shared),
    ]
    comparison = compare_runs(records)
    assert comparison.target == 0.0187  # 0.017 plus 10 %
    reached = [(s.label, mean(s, "rounds_to_target")) for s in comparison.summaries]
    assert reached == [("fedadam", 2), ("fedavg", 4)]


def test_unfinished_run_uses_the_mean_over_its_last_hundred_rounds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", rounds=200, value=0.9, metric=None, better=None).path
    values = {0: 0.0, 50: 0.3, 51: 0.5, 150: 0.7}
    write_lines(run, [{"round": t, "split": "test", "accuracy": v, "seconds": t} for t, v in values.items()])
    summary = compare_runs([read_run(run)]).best
    assert mean(summary, "value") == pytest.approx(0.6)  # rounds 51 to 150; the recorded 0.9 is outdated
    assert (mean(summary, "seconds"), mean(summary, "bytes_total")) == (150.0, None)
    assert summary.note == "unfinished, round 150 of 200"


@pytest.mark.parametrize("status", ["failed", "diverged"])
def test_failed_run_is_ranked_last_and_does_not_set_the_target(tmp_path: Path, status: str) -> None:
    failed = write_run(tmp_path / "a", "fedadam", (0.1, 0.99, 0.99), status=status, rounds=60)
    pruned = write_run(tmp_path / "c", "scaffold", (0.1, 0.98, 0.98), status="pruned", rounds=60)
    comparison = compare_runs([failed, pruned, write_run(tmp_path / "b", values=(0.1, 0.5, 0.5))])
    found = comparison.summaries
    assert [s.label for s in found] == ["fedavg", "scaffold", "fedadam"]
    assert [s.note for s in found] == ["", "pruned, round 4 of 60", f"{status}, round 4 of 60"]
    assert comparison.target == 0.45
    assert [s.failed for s in found] == [False, False, True]
    assert [s.eligible for s in found] == [True, False, False]


def test_run_with_rejected_clients_is_ranked_behind_finite_runs(three: list[RunRecord]) -> None:
    best = next(record for record in three if record.label == "fedyogi")
    best.train[-1]["rejected"] = 2
    comparison = compare_runs(three)
    assert [s.label for s in comparison.summaries] == ["scaffold", "fedavg", "fedyogi"]
    assert mean(comparison.summaries[-1], "rejected") == 2
    assert not comparison.summaries[-1].eligible
    titles = [column.title for column in comparison_columns(comparison)]
    assert titles[-1] == "rejected"
    best.train[-1]["rejected"] = 0
    assert "rejected" not in [column.title for column in comparison_columns(compare_runs(three))]


def test_several_seeds_have_a_mean_and_a_confidence_interval(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "fedadam", FIRST) + write_seeds(tmp_path, "fedavg", FAR)
    best = compare_runs(records).best
    half_width = T_2 * 0.02 / 3**0.5  # the sample standard deviation of both is 0.02
    assert (best.label, best.result) == ("fedadam", pytest.approx((0.72, half_width, 3), rel=1e-6))


def test_differences_within_the_paired_interval_are_noise(tmp_path: Path) -> None:
    """The differences from the best are 0.10 three times, and -0.01, 0.02, -0.005: 0.002 +- 0.040."""
    runs = [r for name, v in (("a", FIRST), ("b", NEAR), ("c", FAR)) for r in write_seeds(tmp_path, name, v)]
    comparison = compare_runs([*runs, write_trial(tmp_path / "d", "d", (0.1, 1.0), 0.5)])
    assert [s.label for s in comparison.summaries] == ["a", "b", "c", "d"]
    assert comparison.verdicts() == ["best", "within noise", "worse", "noise unknown"]


def test_incomplete_runs_have_no_verdict(tmp_path: Path) -> None:
    done, running = (
        write_run(tmp_path / "a", value=0.5),
        write_run(tmp_path / "b", "fedadam", status="running"),
    )
    assert compare_runs([done, running]).verdicts() == ["best", ""]
    assert compare_runs([running]).verdicts() == [""]


def test_diverged_seed_is_noted_and_excluded_from_the_mean(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "fedavg", (0.4, 0.6)) + write_seeds(tmp_path, "fedadam", (0.1, 0.1))
    bad = write_trial(tmp_path / "bad", "fedavg", (0.1, 1.0), 0.9, seed=2, status="diverged")
    assert [(s.label, mean(s, "last_value"), s.note) for s in compare_runs([*records, bad]).summaries] == [
        ("fedadam", 0.1, ""),  # a configuration with a failed seed is not the best
        ("fedavg", 0.5, "diverged: 1 of 3 seeds"),
    ]


def test_rounds_to_target_are_averaged_over_the_seeds_that_reach_it(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "fedavg", (0.5, 0.5, 0.9)) + write_seeds(
        tmp_path, "fedadam", (0.6, 0.7, 0.8)
    )
    found = {s.label: s.interval("rounds_to_target") for s in compare_runs(records).summaries}
    assert found["fedavg"] == (2, None, 1)  # the best mean is 0.7, so the target is 0.63
    assert found["fedadam"] == (2, 0, 2)


def test_final_measure_of_another_metric_is_its_mean_over_the_evaluations(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run", value=0.8, train_loss=0.3)
    record = record._replace(test=[{"round": t, "loss": float(t)} for t in (0, 2, 4)])
    assert [final_measure(record, name) for name in ("accuracy", "train_loss", "loss")] == [0.8, 0.3, 3.0]


def test_no_runs_and_mixed_tasks_are_rejected(three: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        compare_runs([])
    other = write_run(tmp_path / "other", task="shakespeare")
    with pytest.raises(ConfigError) as caught:
        compare_runs([*three, other])
    assert caught.value.keys == ("task",)
    message = str(caught.value)
    assert str(other.path) in message and "emnist_cr" in message and "\n" not in message
