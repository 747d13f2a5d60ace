"""The result of a comparison in one sentence."""

from __future__ import annotations

from pathlib import Path

from written import write_run, write_seeds, write_trial

from fedopt.reports.sentences import headline
from fedopt.reports.summary import Rule, compare_runs
from fedopt.runs.records import RunRecord

FIRST, NEAR, FAR = (0.70, 0.72, 0.74), (0.71, 0.70, 0.745), (0.60, 0.62, 0.64)


def sentence(records: list[RunRecord], rule: Rule = "last") -> str:
    return headline(compare_runs(records, rule))


def demo(root: Path) -> list[RunRecord]:
    """Means that do not agree with the last evaluations, as in a short demo."""
    values = {"fedavg": (0.1, 0.2, 0.356), "fedyogi": (0.1, 0.3, 0.405), "fedadam": (0.1, 0.01, 0.415)}
    return [write_run(root / name, name, v, value=sum(v) / 3) for name, v in values.items()]


def test_one_seed_states_the_margins_and_that_they_may_be_noise(tmp_path: Path) -> None:
    assert sentence(demo(tmp_path)) == (
        "fedadam reaches 41.5 % accuracy at round 4, 1.0 points above fedyogi and 5.9 above fedavg. "
        "One seed: 1.0 points may be noise; several seeds (--seeds 0:5 or seeds=range(5)) measure it."
    )


def test_papers_rule_leads_with_the_mean_if_it_is_requested(tmp_path: Path) -> None:
    text = sentence(demo(tmp_path), "paper")  # means of 26.8, 21.9 and 17.5 %
    assert text.startswith(
        "fedyogi has 26.8 % accuracy as mean of all 4 rounds, 5.0 points above fedavg and 9.3 above fedadam."
    )


def test_configurations_with_the_same_result_share_the_first_place(tmp_path: Path) -> None:
    values = {"fedavg": (0.1, 0.778), "fedadam": (0.1, 0.791), "fedyogi": (0.2, 0.791)}
    records = [write_run(tmp_path / name, name, v) for name, v in values.items()]
    assert sentence(records) == (
        "fedadam and fedyogi reach 79.1 % accuracy at round 2, 1.3 points above fedavg. "
        "One seed: 1.3 points may be noise; several seeds (--seeds 0:5 or seeds=range(5)) measure it."
    )
    assert sentence(records[1:]) == (
        "fedadam and fedyogi reach 79.1 % accuracy at round 2. "
        "One seed: several seeds (--seeds 0:5 or seeds=range(5)) may distinguish them."
    )


def test_small_margins_are_not_shown_as_zero(tmp_path: Path) -> None:
    values = {"fedavg": (0.1, 0.7910), "fedadam": (0.1, 0.7912)}
    records = [write_run(tmp_path / name, name, v) for name, v in values.items()]
    assert sentence(records).startswith(
        "fedadam reaches 79.1 % accuracy at round 2, less than 0.1 points above fedavg. "
        "One seed: less than 0.1 points may be noise;"
    )


def test_papers_rule_names_the_last_100_rounds_of_a_long_run(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a", values=(0.1, 0.2))
    long = record._replace(test=[{"round": 300, "accuracy": 0.5}])
    assert sentence([long], "paper") == "fedavg has 50.0 % accuracy as mean of last 100 rounds."


def test_one_run_has_no_margin(tmp_path: Path) -> None:
    assert sentence(demo(tmp_path)[:1]) == "fedavg reaches 35.6 % accuracy at round 4."


def test_lower_metrics_are_below_the_others(tmp_path: Path) -> None:
    values = {"fedavg": (0.1, 0.05, 0.0204), "fedadam": (0.1, 0.05, 0.018)}
    records = [
        write_run(tmp_path / name, name, v, metric="mse", better="lower") for name, v in values.items()
    ]
    assert sentence(records) == (
        "fedadam reaches 18.00 (MSE × 1000) at round 4, 2.40 below fedavg. "
        "One seed: 2.40 (MSE × 1000) may be noise; several seeds (--seeds 0:5 or seeds=range(5)) measure it."
    )


def test_several_seeds_state_the_paired_interval_and_what_is_noise(tmp_path: Path) -> None:
    runs = [r for name, v in (("a", FIRST), ("b", NEAR), ("c", FAR)) for r in write_seeds(tmp_path, name, v)]
    assert sentence(runs) == (
        "a reaches 72.0 ± 5.0 % accuracy at round 4 (mean of 3 seeds, 95 % interval), "
        "10.0 ± 0.0 points above c. Within noise of a: b (0.2 ± 4.0 points)."
    )
    clear = [record for record in runs if record.label != "b"]
    assert sentence(clear).endswith("10.0 ± 0.0 points above c. The differences are larger than noise.")
    single = write_trial(tmp_path / "d", "d", (0.1, 1.0), 0.5)
    assert sentence([*runs, single]).endswith(
        "Within noise of a: b (0.2 ± 4.0 points). Fewer than two common seeds: d."
    )


def test_runs_of_other_lengths_are_named_with_their_round(tmp_path: Path) -> None:
    long = write_run(tmp_path / "a", "fedavg", (0.1, 0.2, 0.5))
    short = write_run(tmp_path / "b", "fedadam", (0.1, 0.4))
    assert "10.0 points above fedadam (at round 2)." in sentence([long, short])


def test_unfinished_and_failed_runs_are_not_announced_as_results(tmp_path: Path) -> None:
    failed = write_run(tmp_path / "a", status="diverged", rounds=60)
    assert sentence([failed]) == "No run has a result yet."
    running = write_run(tmp_path / "b", "fedadam", (0.1, 0.4), status="running", rounds=60)
    assert sentence([failed, running]) == (
        "fedadam reaches 40.0 % accuracy at round 2 (unfinished, round 4 of 60)."
    )


def test_many_configurations_are_shortened(tmp_path: Path) -> None:
    records = [write_run(tmp_path / n, n, (0.1, 0.2, 0.5 - 0.01 * at)) for at, n in enumerate("abcdef")]
    assert "1.0 points above b, 2.0 above c, 3.0 above d and 4.0 above e. One seed" in sentence(records)
