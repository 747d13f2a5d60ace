"""Selection of lines."""

from __future__ import annotations

from pathlib import Path

from written import write_run

from fedopt.reports.charts import select_lines
from fedopt.reports.line_styles import ALGORITHM_STYLES
from fedopt.reports.summary import compare_runs


def test_styles_do_not_depend_on_the_ranks(tmp_path: Path) -> None:
    styles = []
    for at, values in enumerate(((0.1, 0.9), (0.9, 0.1))):
        names = zip(("a", "b"), values, strict=True)
        runs = [write_run(tmp_path / f"{name}{at}", name, (0, v, v), value=v) for name, v in names]
        comparison = compare_runs(runs)
        selection = select_lines(comparison)
        styles.append({summary.label: selection.style(summary) for summary in comparison.summaries})
    assert styles[0] == styles[1]


def test_thin_lines_have_the_colour_of_their_algorithm(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(at), "fedadam", config=f"x = {at}\n") for at in range(13)]
    comparison = compare_runs(runs)
    selection = select_lines(comparison)
    colours = {selection.trial_colour(summary) for summary in selection.trials}
    assert colours == {ALGORITHM_STYLES["fedadam"].colour}


def test_lines_without_a_name_have_no_style(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(at), config=f"x = {at}\n", value=at / 100) for at in range(13)]
    comparison = compare_runs(runs)
    selection = select_lines(comparison)
    assert (len(selection.named), len(selection.trials), selection.omitted) == (1, 12, 0)
    assert [selection.style(summary) is None for summary in comparison.summaries] == [False] + [True] * 12
    assert len(select_lines(compare_runs(runs[:12])).named) == 12
