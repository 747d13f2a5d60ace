"""The heat maps of the report."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from pages import by_class, by_id, parse_page, section, table_rows, text
from written import write_grid, write_trial

from fedopt.reports.charts import sorted_trials_chart
from fedopt.reports.grids import sweep_view
from fedopt.reports.heatmaps import heat_maps
from fedopt.reports.page import render_report
from fedopt.runs.discover import find_runs
from fedopt.runs.records import RunRecord


@pytest.fixture
def grid(tmp_path: Path) -> list[RunRecord]:
    return write_grid(tmp_path)


def rates_section(records: list[RunRecord]) -> Element:
    return section(parse_page(render_report(records, "a page")), "Learning rates")


def test_each_tau_has_a_map_with_a_cell_for_each_trial(grid: list[RunRecord]) -> None:
    rates = rates_section(grid)
    tables = by_class(rates, "heat")
    assert [table.get("role") for table in tables] == ["grid", "grid"]
    for table in tables:
        cells = by_class(table, "cell")
        assert len(cells) == 16
        assert [cell.get("tabindex") for cell in cells].count("0") == 1  # one entry for the keyboard
        assert [text(cell) for cell in cells if "ended" in cell.get("class")] == ["×"]  # diverged
        rows = table_rows(table)
        assert [row[-5] for row in rows[:4]] == ["1", "0", "−1", "−2"]  # server rates
        assert rows[4][2:] == ["−3", "−2", "−1", "0"]  # client rates
    (taus,) = (select for select in rates.iter("select") if "data-maps" in select.attrib)
    assert [text(option) for option in taus] == ["0.001", "0.1 (the best trial)"]
    assert ["selected" in option.attrib for option in taus] == [False, True]
    assert ["hidden" in box.attrib for box in by_class(rates, "heatbox")] == [True, False]


def test_tuning_table_compares_all_methods_with_the_same_best_trial(
    grid: list[RunRecord], tmp_path: Path
) -> None:
    """Only the best, 0.44, is within one percentage point. FedAvg's best is 0.18, one trial diverged."""
    (ease,) = by_class(rates_section(grid + write_grid(tmp_path, "fedavg", (1.0,))), "ease")
    heads, adam, average = table_rows(ease)
    near, better = "within 1 percentage point of the best of all methods", "better than the best fedavg"
    assert dict(zip(heads, adam, strict=True)) == {
        "method": "fedadam",
        "best mean accuracy": "44.0 %",
        "with rates": "0, 1, tau 0.1",
        "selected by the paper's rule": "9.0 % at 0, −2, tau 0.001",  # the first trial with the smallest loss
        near: "3 % 1 of 32",
        better: "47 % 15 of 32",  # all trials of the second tau, 0.26 or more, that did not diverge
    }
    assert dict(zip(heads, average, strict=True))[near] == "0 % 0 of 16"
    assert dict(zip(heads, average, strict=True))[better] == "–"


def test_sorted_trials_are_drawn_by_method(grid: list[RunRecord], tmp_path: Path) -> None:
    maps = heat_maps(sweep_view(grid + write_grid(tmp_path, "fedavg", (1.0,))))
    assert maps is not None
    chart = sorted_trials_chart(maps.eases, maps.grids, "accuracy")
    assert [entry.name for entry in chart.legend] == ["fedadam", "fedavg"]
    average = chart.lines[1]  # 16 trials, one of which diverged: 0.03 (c + s)
    expected = sorted((3.0 * (c + s) for c in range(4) for s in range(4) if (c, s) != (0, 3)), reverse=True)
    assert average.y == pytest.approx(expected)
    assert average.x == pytest.approx([100 * (at + 1) / 16 for at in range(15)])


def test_edge_of_the_grid_is_marked_where_the_selected_trial_lies(grid: list[RunRecord]) -> None:
    """The best trial has the largest client rate and the largest server rate."""
    maps = by_class(rates_section(grid), "heat")
    edges = [{name for name in table.get("class").split() if name.startswith("edge-")} for table in maps]
    assert edges == [set(), {"edge-right", "edge-top"}]
    (warning,) = by_class(rates_section(grid), "warning")
    assert "largest client rate, largest server rate" in text(warning)


def test_cell_refers_to_its_trial_in_the_table(grid: list[RunRecord], tmp_path: Path) -> None:
    rates = rates_section(grid)
    (best,) = (cell for cell in by_class(rates, "cell") if text(cell) == "★ 44.0")
    heads, *rows = table_rows(by_class(rates, "trials")[0].find(".//table"))
    assert dict(zip(heads, rows[int(best.get("data-trial"))], strict=True)) == {
        "client rate": "1 (log10 0)",
        "server rate": "10 (log10 1)",
        "tau": "0.1",
        "last evaluation": "44.0 %",
        "mean accuracy": "44.0 %",
        "train loss": "0.7",
        "status": "done, 4 rounds",
        "marked as": "best mean accuracy",
        "run": str(tmp_path / "fedadam-331"),
    }


def test_missing_trial_is_a_blank_cell(grid: list[RunRecord]) -> None:
    (blank,) = by_class(rates_section(grid[1:]), "blank")
    assert "data-trial" not in blank.attrib
    assert blank.get("aria-label") == "client rate 0.001, server rate 0.01: no trial"


def test_trials_are_listed_in_a_table(grid: list[RunRecord]) -> None:
    rates = rates_section(grid)
    heads, *rows = table_rows(rates.find(".//details//table"))
    numbers = ["last evaluation", "mean accuracy", "train loss"]
    assert heads == ["client rate", "server rate", "tau", *numbers, "status", "marked as", "run"]
    assert len(rows) == 32 and [row[6] for row in rows].count("diverged, 4 rounds") == 2


def read_all(root: Path) -> list[RunRecord]:
    return find_runs([root]).records


@pytest.mark.parametrize("plan", ["{", "[]", '{"select": 3}', '{"select": "nonsense"}'])
def test_invalid_selection_of_a_sweep_is_ignored(tmp_path: Path, plan: str) -> None:
    (tmp_path / "sweep.json").write_text(plan)
    found = heat_maps(sweep_view(write_grid(tmp_path / "trials")))
    assert found is not None
    assert (found.unit.name, found.selects_metric, found.selects_train_loss) == (
        "mean accuracy",
        False,
        False,
    )
    assert (found.eases[0].near_best, found.eases[0].total) == (1, 32)
    assert not sweep_view(read_all(tmp_path)).is_sweep


@pytest.mark.parametrize(("select", "expected"), [("accuracy", (True, False)), ("train_loss", (False, True))])
def test_selection_criterion_of_a_sweep_is_stated(
    tmp_path: Path, select: str, expected: tuple[bool, bool]
) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"select": select}))
    records = write_grid(tmp_path / "trials")
    found = heat_maps(sweep_view(records))
    assert (found.selects_metric, found.selects_train_loss) == expected
    assert "the selection criterion of this sweep" in text(rates_section(records))


def test_titles_of_synthetic_data_are_marked(grid: list[RunRecord]) -> None:
    page = parse_page(render_report(grid, "a page"))
    assert len(by_class(page, "tag")) == 7  # four charts, maps, tuning, results
    assert by_id(page, "ease").find("span").get("class") == "tag"


def test_random_trials_are_not_drawn_as_a_grid(tmp_path: Path) -> None:
    records = [write_trial(tmp_path / str(at), "fedavg", (0.1 + at, 0.2 + at), 0.5) for at in range(8)]
    assert heat_maps(sweep_view(records)) is None
    assert by_class(parse_page(render_report(records, "scattered")), "heat") == []
