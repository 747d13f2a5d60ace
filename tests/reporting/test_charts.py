"""The data of the charts: lines, bands and axes, and their drawing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import by_class, by_id, parse_page, text
from written import write_grid, write_lines, write_run, write_seeded

from fedopt.analysis.summary import compare_runs
from fedopt.reporting import render_report
from fedopt.reporting.chart_drawing import draw_chart
from fedopt.reporting.charts import Chart, run_charts
from fedopt.reporting.line_selection import select_lines
from fedopt.runs.records import RunRecord, read_run

T_2 = 4.302653  # quantile of Student's t for three seeds, from a table


def charts(records: list[RunRecord], window: int = 1) -> list[Chart]:
    comparison = compare_runs(records)
    return run_charts(comparison, select_lines(comparison), window)


def points(path: str) -> list[tuple[float, float]]:
    """The points of a path of straight lines: M1 2L3 4."""
    pairs = [part.split() for part in path.replace("M", "L").rstrip("Z").split("L")[1:]]
    return [(float(x), float(y)) for x, y in pairs]


def test_lines_have_scaled_values(three: list[RunRecord]) -> None:
    metric, loss, sent = charts(three)
    assert metric.lines[0].x == [0, 2, 4]
    assert metric.lines[0].y == pytest.approx([10, 78, 85])
    assert metric.target == pytest.approx(76.5)
    assert sent.lines[1].x == [0, 40, 80]  # scaffold, 20 MB a round
    assert loss.lines[0].y == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)


def test_drawing_maps_values_to_pixels(three: list[RunRecord]) -> None:
    drawing = draw_chart(charts(three)[0])
    best = points(drawing.lines[0].path)  # 10, 78 and 85 % at rounds 0, 2 and 4
    assert [x for x, _ in best] == pytest.approx(
        [drawing.left, (drawing.left + drawing.right) / 2, drawing.right], abs=0.1
    )
    height = drawing.bottom - drawing.top  # the axis covers 10 to 85 with a margin of 4 % on both sides
    expected = [drawing.bottom - height * (value - 7) / 81 for value in (10, 78, 85)]
    assert [y for _, y in best] == pytest.approx(expected, abs=0.1)
    assert drawing.target == pytest.approx(drawing.bottom - height * (76.5 - 7) / 81, abs=0.1)
    assert [tick.label for tick in drawing.y_ticks] == ["20", "40", "60", "80"]
    assert [tick.label for tick in drawing.x_ticks] == ["0", "1", "2", "3", "4"]  # rounds are whole numbers


def test_smoothed_line_has_the_raw_line_behind_it(three: list[RunRecord]) -> None:
    drawing = draw_chart(charts(three, window=2)[1])
    raw, smooth = points(drawing.lines[0].raw), points(drawing.lines[0].path)
    pixels = (raw[3][1] - raw[0][1]) / (1 / 4 - 1)  # losses 1, 1/2, 1/3, 1/4
    assert [y for _, y in raw] == pytest.approx(
        [raw[0][1] + pixels * (1 / t - 1) for t in (1, 2, 3, 4)], abs=0.2
    )
    means = (1, 3 / 4, 5 / 12, 7 / 24)  # of two rounds
    assert [y for _, y in smooth] == pytest.approx([raw[0][1] + pixels * (m - 1) for m in means], abs=0.2)


def test_smoothing_does_not_change_the_band(tmp_path: Path) -> None:
    """The band is the confidence interval of each point, not of the moving average."""
    records = write_seeded(tmp_path)
    raw, smooth = (draw_chart(charts(records)[0]._replace(window=window)).lines[0] for window in (1, 2))
    assert smooth.path != raw.path and smooth.band == raw.band != ""
    page = parse_page(render_report(records, "a page"))
    assert "Band: 95 % confidence interval" in text(by_id(page, "metric-by-round"))


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


def test_long_lines_keep_their_extremes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run").path
    losses = [5.0 if t == 777 else 1.0 for t in range(1, 4001)]
    write_lines(run, [{"round": t, "split": "train", "loss": v} for t, v in enumerate(losses, 1)])
    record = read_run(run)
    drawing = draw_chart(charts([record._replace(info=record.info | {"status": "running"})])[1])
    drawn = points(drawing.lines[0].path)
    assert len(drawn) < 1200
    assert min(y for _, y in drawn) < drawing.top + 20 and max(y for _, y in drawn) > drawing.bottom - 20


def test_several_seeds_are_one_line_with_a_band(tmp_path: Path) -> None:
    metric = charts(write_seeded(tmp_path))[0]
    lines = {metric.legend[line.entry].name: line for line in metric.lines}
    assert lines["fedadam"].y == pytest.approx([10, 60, 60])
    half_width = T_2 * 10 / 3**0.5  # the standard deviation of 50, 60, 70 is 10
    assert lines["fedadam"].low == pytest.approx([10, 60 - half_width, 60 - half_width], rel=1e-5)
    assert lines["fedadam"].high == pytest.approx([10, 60 + half_width, 60 + half_width], rel=1e-5)
    assert lines["fedavg"].low[1] == pytest.approx(30 - half_width, rel=1e-5)
    assert all(line.band.endswith("Z") for line in draw_chart(metric).lines)


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
    assert loss.y.log
    assert [tick.label for tick in draw_chart(loss).y_ticks] == ["10", "100"]


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


def test_bad_trials_do_not_flatten_the_losses_of_named_lines(tmp_path: Path) -> None:
    loss = charts(write_grid(tmp_path))[1]
    (line,) = (line for line in loss.lines if line.entry is not None)
    trials = [
        other._replace(y=[1e6 * value for value in other.y]) for other in loss.lines if other.entry is None
    ]
    drawing = draw_chart(loss._replace(lines=[*trials, line]))
    assert min(y for _, y in points(drawing.lines[0].path)) < drawing.top + 20


def test_each_chart_has_a_frame_with_legend_and_label(three: list[RunRecord]) -> None:
    page = parse_page(render_report(three, "a page"))
    figures = by_class(page, "chart")
    assert [figure.get("id") for figure in figures] == [chart.id for chart in charts(three)]
    for figure in figures:
        (drawing,) = by_class(figure, "plot")[0].iter("svg")
        assert drawing.get("role") == "img" and drawing.get("aria-label")
        assert len(by_class(drawing, "line")) == 3  # without JavaScript
        assert [text(button) for button in by_class(figure, "legend")[0]] == ["fedyogi", "scaffold", "fedavg"]
