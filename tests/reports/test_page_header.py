"""The header of the report: facts and the result in one sentence."""

from __future__ import annotations

from pathlib import Path

from written import write_grid, write_run

from fedopt.reports.grids import sweep_view
from fedopt.reports.page import page_facts
from fedopt.reports.sentences import describe_result
from fedopt.reports.summary import compare_runs
from fedopt.runs.records import RunRecord


def test_result_is_the_headline(three: list[RunRecord]) -> None:
    result = describe_result(compare_runs(three), sweep_view(three))
    assert result.startswith("fedyogi reaches 85.0 % accuracy at round 4, 8.0 points above scaffold")


def test_result_names_failed_runs_or_counts_many(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", value=0.5), write_run(tmp_path / "b", "fedadam", status="diverged")]
    assert describe_result(compare_runs(runs), sweep_view(runs)).endswith("Diverged: fedadam.")
    grid = write_grid(tmp_path / "grid")
    assert "Diverged: 2 of 32." in describe_result(compare_runs(grid), sweep_view(grid))


def test_facts_show_ranges_of_seeds_and_dates(tmp_path: Path) -> None:
    started = ("2026-11-15T20:00", "2026-11-16T01:00")
    records = [
        write_run(tmp_path / str(seed), config=f"seed = {seed}\n", started=started[seed % 2], params=None)
        for seed in range(4)
    ]
    facts = page_facts(compare_runs(records))
    assert (facts["Seeds"], facts["Configurations"], facts["Runs"]) == ("0 to 3", "1", "4")
    assert (facts["Date"], facts["Parameters"]) == ("2026-11-15 to 2026-11-16", "–")
