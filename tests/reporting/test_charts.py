"""The data of the charts: lines, bands and axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import by_class, parse_page, text
from written import write_grid, write_lines, write_run, write_seeded

from fedopt.analysis.summary import compare_runs
from fedopt.reporting import render_report
from fedopt.reporting.charts import chart_data
from fedopt.reporting.line_styles import select_lines
from fedopt.runs.records import RunRecord, read_run

T_2 = 4.302653  # quantile of Student's t for three seeds, from a table


def charts(records: list[RunRecord], window: int = 1) -> dict[str, Any]:
    comparison = compare_runs(records)
    return chart_data(comparison, select_lines(comparison), window)


def test_lines_have_scaled_values(three: list[RunRecord]) -> None:
    metric, loss, sent = charts(three, window=2)["charts"]
    assert metric["lines"][0]["x"] == [0, 2, 4]
    assert metric["lines"][0]["y"] == pytest.approx([10, 78, 85])
    assert metric["target"] == pytest.approx(76.5)
    assert sent["lines"][1]["x"] == [0, 40, 80]  # scaffold, 20 MB a round
    assert loss["lines"][0]["y"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)
    assert loss["lines"][3]["y"] == pytest.approx([1, 3 / 4, 5 / 12, 7 / 24], rel=1e-5)  # means of two


def test_several_seeds_are_one_line_with_a_band(tmp_path: Path) -> None:
    data = charts(write_seeded(tmp_path))
    metric = data["charts"][0]
    line = metric["lines"][0]  # fedadam, the best
    assert [entry["name"] for entry in data["runs"]] == ["fedadam", "fedavg"]
    assert line["y"] == pytest.approx([10, 60, 60])
    half_width = T_2 * 10 / 3**0.5  # the standard deviation of 50, 60, 70 is 10
    assert line["half"] == pytest.approx([0, half_width, half_width], rel=1e-5, abs=1e-9)
    assert (line["low"][1], line["high"][1]) == pytest.approx((60 - half_width, 60 + half_width), rel=1e-5)
    assert metric["lines"][1]["low"][1] == pytest.approx(30 - half_width, rel=1e-5)


def test_band_covers_rounds_of_all_seeds_and_possible_values_only(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, config=f"seed = {seed}\n", status="running")
        for seed, name in enumerate("ab")
    ]
    values = ({0: 0.1, 2: 0.1, 4: 0.9}, {0: 0.1, 2: 0.9})
    for run, points in zip(runs, values, strict=True):
        write_lines(run.path, [{"round": t, "split": "test", "accuracy": v} for t, v in points.items()])
    (line,) = charts([read_run(run.path) for run in runs])["charts"][0]["lines"]
    assert line["x"] == [0, 2]
    assert (line["low"][1], line["high"][1]) == (0, 100)  # 50 +- 508


def test_axis_is_logarithmic_for_values_over_orders_of_magnitude(tmp_path: Path) -> None:
    run, losses = write_run(tmp_path / "run").path, (None, 2.0, None, 300.0, float("nan"), float("inf"), True)
    write_lines(run, [{"round": t, "split": "train", "loss": loss} for t, loss in enumerate(losses, 1)])
    assert charts([read_run(run)])["charts"][1]["y"]["type"] == "log"


def test_name_of_an_incomplete_run_includes_its_state(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "fedadam", status="diverged")]
    assert [run["name"] for run in charts(runs)["runs"]] == ["fedavg", "fedadam (diverged)"]


def test_many_trials_have_one_named_line_per_algorithm_and_grey_lines(tmp_path: Path) -> None:
    records = write_grid(tmp_path) + write_grid(tmp_path, "fedavg", (1.0,))
    records += write_grid(tmp_path, "fedyogi", (1e-4, 1.0, 2.0))
    data = charts(records)
    assert sorted(run["name"].split()[0] for run in data["runs"]) == ["fedadam", "fedavg", "fedyogi"]
    grey = [line for line in data["charts"][0]["lines"] if line["run"] is None]
    assert len(grey) == 60  # of 96 - 3 trials, six of which diverged
    low, high = data["charts"][1]["y"]["range"]  # losses of 1, 1/2, 1/3, 1/4
    assert (low, high) == pytest.approx((0.25 - 0.05 * 0.75, 1 + 0.05 * 0.75))
    page = parse_page(render_report(records, "a page"))
    assert "Grey: 60 others. Not drawn: 33 more." in text(by_class(page, "charts")[0])


def test_each_chart_has_a_frame_with_legend_and_label(three: list[RunRecord]) -> None:
    page = parse_page(render_report(three, "a page"))
    plots = by_class(page, "plot")
    assert [plot.get("id") for plot in plots] == [chart["id"] for chart in charts(three)["charts"]]
    assert all(plot.get("role") == "img" and plot.get("aria-label") for plot in plots)
    for legend in by_class(page, "legend"):
        assert [(b.get("data-run"), text(b)) for b in legend] == [
            ("0", "fedyogi"),
            ("1", "scaffold"),
            ("2", "fedavg"),
        ]
