"""The header of the report: facts and the result in one sentence."""

from __future__ import annotations

from pathlib import Path

from written import write_grid, write_run, write_seeded, write_seeds

from fedopt.analysis.summary import compare_runs
from fedopt.reporting.overview import describe_result, page_facts
from fedopt.runs.records import RunRecord


def test_result_names_the_best_run_and_its_value(three: list[RunRecord]) -> None:
    result = describe_result(compare_runs(three))
    assert result.startswith("Best of 3 runs: fedyogi, with accuracy 80.0 %")
    assert describe_result(compare_runs(three[:1])).startswith("One run: fedavg, with accuracy 60.0 %")


def test_result_of_several_seeds_has_the_half_width(tmp_path: Path) -> None:
    result = describe_result(compare_runs(write_seeded(tmp_path)))
    assert result.startswith("Best of 2 configurations: fedadam, with accuracy 60.0 ± 24.8 %")


def test_result_counts_configurations_within_noise(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "a", (0.70, 0.72, 0.74)) + write_seeds(tmp_path, "b", (0.71, 0.70, 0.745))
    assert describe_result(compare_runs(records)).endswith("Within noise of it: 1 of the 1 others.")


def test_result_names_failed_runs_or_counts_many(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", value=0.5), write_run(tmp_path / "b", "fedadam", status="diverged")]
    assert describe_result(compare_runs(runs)).endswith("Diverged: fedadam.")
    assert "Diverged: 2 of 32." in describe_result(compare_runs(write_grid(tmp_path / "grid")))


def test_facts_show_ranges_of_seeds_and_dates(tmp_path: Path) -> None:
    started = ("2026-11-15T20:00", "2026-11-16T01:00")
    records = [
        write_run(tmp_path / str(seed), config=f"seed = {seed}\n", started=started[seed % 2], params=None)
        for seed in range(4)
    ]
    facts = page_facts(compare_runs(records))
    assert (facts["Seeds"], facts["Configurations"], facts["Runs"]) == ("0 to 3", "1", "4")
    assert (facts["Date"], facts["Parameters"]) == ("2026-11-15 to 2026-11-16", "–")
