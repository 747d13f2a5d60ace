"""Selection and styles of lines."""

from __future__ import annotations

from pathlib import Path

from written import write_run

from fedopt.analysis.summary import compare_runs
from fedopt.reporting.line_styles import COLOURS, select_lines


def test_styles_follow_the_order_of_the_runs_instead_of_the_ranks(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, name, value=value) for name, value in (("a", 0.1), ("b", 0.9))]
    comparison = compare_runs(runs)
    selection = select_lines(comparison)
    styles = {summary.label: selection.style(summary) for summary in comparison.summaries}
    assert (styles["a"].colour, styles["b"].colour) == COLOURS[:2]


def test_lines_without_a_name_have_no_style(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(at), config=f"x = {at}\n", value=at / 100) for at in range(13)]
    comparison = compare_runs(runs)
    selection = select_lines(comparison)
    assert (len(selection.named), len(selection.grey), selection.omitted) == (1, 12, 0)
    assert [selection.style(summary) is None for summary in comparison.summaries] == [False] + [True] * 12
    assert len(select_lines(compare_runs(runs[:12])).named) == 12
