"""The heat maps of the report."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from pages import by_class, by_id, parse_page, section, table_rows, text
from written import write_grid, write_trial

from fedopt.reporting import render_report
from fedopt.reporting.heatmaps import heat_maps
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
    assert [text(option) for option in rates.iter("option")] == ["0.001", "0.1 (the best trial)"]
    assert ["selected" in option.attrib for option in rates.iter("option")] == [False, True]
    assert ["hidden" in box.attrib for box in by_class(rates, "heatbox")] == [True, False]


def test_tuning_table_has_the_share_of_trials_near_the_best(grid: list[RunRecord]) -> None:
    """Only the best, 0.44, is within one percentage point of itself: 1 of 32, 1 of 16 with its tau."""
    (ease,) = by_class(rates_section(grid), "ease")
    heads, row = table_rows(ease)
    assert dict(zip(heads, row, strict=True)) == {
        "method": "fedadam",
        "best accuracy": "44.0 %",
        "with rates": "0, 1, tau 0.1",
        "the paper's choice": "9.0 % at 0, −2, tau 0.001",  # the first trial with the smallest loss
        "near its best": "1 of 32",
        "share of the grid": "3 %",
        "with the best tau only": "1 of 16",
    }


def test_cell_describes_its_trial(grid: list[RunRecord], tmp_path: Path) -> None:
    cells = by_class(rates_section(grid), "cell")
    (facts,) = (f for cell in cells if (f := json.loads(cell.get("data-trial")))["accuracy"] == "44.0 %")
    assert facts == {
        "client rate": "1 (10^0)",
        "server rate": "10 (10^1)",
        "tau": "0.1",
        "accuracy": "44.0 %",
        "train loss": "0.7",
        "status": "done, 4 rounds",
        "marked as": "best accuracy",
        "run": str(tmp_path / "fedadam-331"),
    }


def test_missing_trial_is_a_blank_cell(grid: list[RunRecord]) -> None:
    (blank,) = by_class(rates_section(grid[1:]), "blank")
    assert json.loads(blank.get("data-trial"))["trial"] == "none"
    assert blank.get("aria-label") == "client rate 0.001, server rate 0.01: no trial"


def test_trials_are_listed_in_a_table(grid: list[RunRecord]) -> None:
    rates = rates_section(grid)
    heads, *rows = table_rows(rates.find(".//details//table"))
    assert heads == ["client rate", "server rate", "tau", "accuracy", "train loss", "status", "run"]
    assert len(rows) == 32 and [row[5] for row in rows].count("diverged, 4 rounds") == 2


@pytest.mark.parametrize("plan", ["{", "[]", '{"select": 3}', '{"select": "nonsense"}'])
def test_invalid_selection_of_a_sweep_is_ignored(tmp_path: Path, plan: str) -> None:
    (tmp_path / "sweep.json").write_text(plan)
    found = heat_maps(write_grid(tmp_path / "trials"))
    assert found is not None
    assert (found.unit.name, found.selects_metric, found.selects_train_loss) == ("accuracy", False, False)
    assert found.tuning[0].near_best[1:3] == (1, 32)


@pytest.mark.parametrize(("select", "expected"), [("accuracy", (True, False)), ("train_loss", (False, True))])
def test_selection_criterion_of_a_sweep_is_stated(
    tmp_path: Path, select: str, expected: tuple[bool, bool]
) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"select": select}))
    records = write_grid(tmp_path / "trials")
    found = heat_maps(records)
    assert (found.selects_metric, found.selects_train_loss) == expected
    assert "the selection criterion of this sweep" in text(rates_section(records))


def test_titles_of_synthetic_data_are_marked(grid: list[RunRecord]) -> None:
    page = parse_page(render_report(grid, "a page"))
    assert len(by_class(page, "tag")) == 6  # three charts, maps, tuning, results
    assert by_id(page, "ease").find("span").get("class") == "tag"


def test_random_trials_are_not_drawn_as_a_grid(tmp_path: Path) -> None:
    records = [write_trial(tmp_path / str(at), "fedavg", (0.1 + at, 0.2 + at), 0.5) for at in range(8)]
    assert heat_maps(records) is None
    assert by_class(parse_page(render_report(records, "scattered")), "heat") == []
