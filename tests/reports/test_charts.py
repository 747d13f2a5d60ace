"""The data of the charts: lines, bands and axes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import by_class, by_id, parse_page, table_rows, text
from written import write_grid, write_lines, write_run, write_seeded

from fedopt.reports.charts import Chart, run_charts, select_lines
from fedopt.reports.page import render_report
from fedopt.reports.summary import compare_runs
from fedopt.runs.records import RunRecord, read_run

T_2 = 4.302653  # quantile of Student's t for three seeds, from a table


def charts(records: list[RunRecord], window: int = 1) -> list[Chart]:
    comparison = compare_runs(records)
    return run_charts(comparison, select_lines(comparison), window)


def test_lines_have_scaled_values(three: list[RunRecord]) -> None:
    metric, loss, sent = charts(three)
    assert metric.lines[0].x == [0, 2, 4]
    assert metric.lines[0].y == pytest.approx([10, 78, 85])
    assert metric.target == pytest.approx(76.5)
    assert sent.lines[1].x == [0, 40, 80]  # scaffold, 20 MB a round
    assert loss.lines[0].y == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)


def test_windows_are_shorter_than_the_lines(three: list[RunRecord]) -> None:
    metric = charts(three)[0]
    line = metric.lines[0]._replace(x=list(range(30)), y=[0.0] * 30)
    assert metric.windows == [1]  # three evaluations
    assert metric._replace(lines=[line]).windows == [1, 5, 10, 25]
    assert metric._replace(lines=[line], window=7).windows == [1, 5, 7, 10, 25]


def test_sorted_trials_cannot_be_smoothed(tmp_path: Path) -> None:
    page = parse_page(render_report(write_grid(tmp_path), "a page"))
    has_control = {
        name: any(e.tag == "select" for e in by_id(page, name).iter())
        for name in ("loss-by-round", "sorted-trials")
    }
    assert has_control == {"loss-by-round": True, "sorted-trials": False}


def test_several_seeds_are_one_line_with_a_band(tmp_path: Path) -> None:
    metric = charts(write_seeded(tmp_path))[0]
    lines = {metric.legend[line.entry].name: line for line in metric.lines}
    assert lines["fedadam"].y == pytest.approx([10, 60, 60])
    half_width = T_2 * 10 / 3**0.5  # the standard deviation of 50, 60, 70 is 10
    assert lines["fedadam"].low == pytest.approx([10, 60 - half_width, 60 - half_width], rel=1e-5)
    assert lines["fedadam"].high == pytest.approx([10, 60 + half_width, 60 + half_width], rel=1e-5)
    assert lines["fedavg"].low[1] == pytest.approx(30 - half_width, rel=1e-5)


def test_band_covers_rounds_of_all_seeds_and_possible_values_only(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, config=f"seed = {seed}\n", status="running")
        for seed, name in enumerate("ab")
    ]
    values = ({0: 0.1, 2: 0.1, 4: 0.9}, {0: 0.1, 2: 0.9})
    for run, points in zip(runs, values, strict=True):
        write_lines(run.path, [{"round": t, "split": "test", "accuracy": v} for t, v in points.items()])
    (line,) = charts([read_run(run.path) for run in runs])[0].lines
    assert line.x == [0, 2]
    assert (line.low[1], line.high[1]) == (0, 100)  # 50 +- 508


def test_axis_is_logarithmic_for_values_over_orders_of_magnitude(tmp_path: Path) -> None:
    run, losses = write_run(tmp_path / "run").path, (None, 2.0, None, 300.0, float("nan"), float("inf"), True)
    write_lines(run, [{"round": t, "split": "train", "loss": loss} for t, loss in enumerate(losses, 1)])
    loss = charts([read_run(run)])[1]
    assert loss.y.log and loss.lines[0].y == [2, 300]


def test_legend_shows_the_state_of_an_incomplete_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "fedadam", status="diverged")]
    (legend, *_) = by_class(parse_page(render_report(runs, "a page")), "legend")
    assert [text(button) for button in legend] == ["fedavg", "fedadam (diverged)"]
    assert [button.get("data-line") for button in legend] == ["fedavg", "fedadam"]


def test_many_trials_have_one_named_line_per_algorithm_and_thin_lines(tmp_path: Path) -> None:
    records = write_grid(tmp_path) + write_grid(tmp_path, "fedavg", (1.0,))
    records += write_grid(tmp_path, "fedyogi", (1e-4, 1.0, 2.0))
    metric = charts(records)[0]
    assert sorted(entry.name.split()[0] for entry in metric.legend) == ["fedadam", "fedavg", "fedyogi"]
    thin = [line for line in metric.lines if line.entry is None]
    assert len(thin) == 60  # of 96 - 3 trials, six of which diverged
    page = parse_page(render_report(records, "a page"))
    assert "Thin: 60 other trials. Not drawn: 33 more." in text(by_class(page, "charts")[0])


def test_each_chart_has_a_legend_a_label_and_a_table_of_some_rounds(three: list[RunRecord]) -> None:
    page = parse_page(render_report(three, "a page"))
    figures = by_class(page, "chart")
    assert [figure.get("id") for figure in figures] == [chart.id for chart in charts(three)]
    for figure in figures:
        (drawing,) = by_class(figure, "plot")[0].iter("svg")
        assert drawing.get("role") == "img" and drawing.get("aria-label")
        assert [text(button) for button in by_class(figure, "legend")[0]] == ["fedyogi", "scaffold", "fedavg"]
    heads, first, *_ = table_rows(by_class(figures[0], "unscripted")[0])
    assert heads == ["round", "0", "2", "4"]
    assert [cell.replace("\xa0", " ") for cell in first] == ["fedyogi", "10.0 %", "78.0 %", "85.0 %"]


def test_table_of_many_rounds_has_eight_with_the_last(three: list[RunRecord]) -> None:
    chart = charts(three)[0]
    line = chart.lines[0]._replace(x=list(range(0, 101)), y=[float(t) for t in range(101)])
    table = chart._replace(lines=[line, chart.lines[1]]).table()
    assert table is not None
    assert table[0] == ["round", "9", "22", "35", "48", "61", "74", "87", "100"]
    assert table[1][0][1:] == [f"{t}.0 %" for t in (9, 22, 35, 48, 61, 74, 87, 100)]
    assert table[1][1][1:] == ["–"] * 8  # evaluated at other rounds
