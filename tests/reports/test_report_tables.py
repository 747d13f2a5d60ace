"""The tables of the report: results and settings."""

from __future__ import annotations

from pathlib import Path

from pages import by_class, parse_page, section, table_rows, text
from written import write_grid, write_run, write_seeded

from fedopt.reports.page import render_report
from fedopt.runs.records import RunRecord


def test_results_are_sortable(three: list[RunRecord]) -> None:
    results = section(parse_page(render_report(three, "a page")), "Results")
    heads = list(results.iter("thead"))[0][0]
    assert [text(head) for head in heads] == [
        "run",
        "accuracy",
        "mean of all 4 rounds",
        "train loss",
        "rounds to 76.5 %",
        "MB sent",
        "MB to 76.5 %",
        "seconds",
    ]
    assert [head.get("aria-sort") for head in heads] == ["none", "descending"] + ["none"] * 6
    rows = list(results.find(".//tbody"))
    assert [row[0].get("data-value") for row in rows] == ["fedyogi", "scaffold", "fedavg"]
    keys = [float(cell.get("data-value")) for cell in rows[0][1:]]
    assert keys == [0.85, 0.8, 0.5, 2, 40_000_000, 20_000_000, 4]
    assert (rows[2][4].get("data-value"), rows[2][4].get("class")) == ("", "absent")  # target not reached
    assert not any(by_class(row, "best") for row in rows)  # one seed: no number is distinguishable


def test_results_of_several_seeds_have_verdicts_and_seed_counts(tmp_path: Path) -> None:
    results = section(parse_page(render_report(write_seeded(tmp_path), "a page")), "Results")
    heads, best, other = table_rows(results.find(".//table"))
    assert (heads[2], heads[-1]) == ("difference to best", "seeds")
    assert best[:3] == ["fedadam", "60.0 ± 24.8 %", "– best"]
    assert other[:3] == ["fedavg", "30.0 ± 24.8 %", "−30.0 ± 0.0 worse"]
    row = results.find(".//tbody")[0]
    assert text(by_class(row, "best")[0]) == "60.0 ± 24.8 %"  # 30 points in each of three seeds
    assert (best[-1], other[-1]) == ("3", "3")


def test_many_configurations_have_columns_of_settings_and_folded_sections(tmp_path: Path) -> None:
    page = parse_page(render_report(write_grid(tmp_path), "a page"))
    heads, first, *_ = table_rows(section(page, "Results").find(".//table"))
    assert heads[:5] == ["run", "client.lr", "server.lr", "server.tau", "accuracy"]
    assert first[:5] == ["fedadam", "1", "10", "0.1", "44.0 %"]
    assert text(section(page, "Commands").find("details/summary")) == "The commands of all 32 runs"
    assert section(page, "Settings").find(".//table") is None  # the results have the settings as columns


def test_results_show_at_most_100_configurations(tmp_path: Path) -> None:
    taus = tuple(10.0**-k for k in range(7))
    page = parse_page(render_report(write_grid(tmp_path, taus=taus), "a page"))
    results = section(page, "Results")
    assert len(table_rows(results.find(".//table"))) == 1 + 100
    assert "The best 100 of 112 configurations." in text(results.find("p"))
    assert text(section(page, "Commands").find("details/summary")) == "The commands of the best 100 runs"


def test_settings_that_differ_are_listed_by_run(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", values=(0.1, 0.2, 0.5), config="seed = 0\nlr = 0.03162277660168379\n")
    second = write_run(tmp_path / "b", "fedadam", config="seed = 1\nbeta = true\n")
    settings = section(parse_page(render_report([first, second], "a page")), "Settings")
    heads, *rows = table_rows(settings.find(".//table"))
    assert heads == ["setting", "fedadam", "fedavg"]  # best first
    assert sorted(rows) == [["beta", "true", "–"], ["lr", "–", "0.03162"], ["seed", "1", "0"]]
    (exact,) = (cell.get("title") for cell in settings.iter("td") if cell.get("title"))
    assert exact == "0.03162277660168379"


def test_equal_settings_are_stated(tmp_path: Path) -> None:
    settings = section(parse_page(render_report(write_seeded(tmp_path), "a page")), "Settings")
    assert settings.find(".//table") is None
    assert text(settings.find("p")) == "Only the algorithm differs."
