"""The comparison table of the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from written import write_run, write_seeds, write_trial

from fedopt.reports.summary import compare_runs
from fedopt.reports.tables import comparison_columns, comparison_table, wide_console
from fedopt.runs.records import RunRecord

FIRST, NEAR, FAR = (0.70, 0.72, 0.74), (0.71, 0.70, 0.745), (0.60, 0.62, 0.64)


def print_table(records: list[RunRecord], width: int = 100, limit: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(comparison_table(compare_runs(records), limit).fit(width))
    return capture.get().splitlines()


def texts(records: list[RunRecord], column: int) -> list[str]:
    return [cell.text for cell in comparison_columns(compare_runs(records))[column].cells]


def test_rows_are_sorted_and_scaled_and_the_title_names_the_data(three: list[RunRecord]) -> None:
    title, *lines = print_table(three)
    assert title.strip() == "emnist_cr, 4 rounds, synthetic data"
    rows = [line.split() for line in lines if line.strip().startswith(("fed", "scaffold"))]
    assert [row[0] for row in rows] == ["fedyogi", "scaffold", "fedavg"]
    assert rows[0] == ["fedyogi", "85.0", "%", "80.0", "%", "0.500", "2", "40.0", "4.00"]
    assert rows[2] == ["fedavg", "70.0", "%", "60.0", "%", "0.900", "–", "40.0", "3.00"]


def bold(records: list[RunRecord], column: int) -> list[bool]:
    return [cell.best for cell in comparison_columns(compare_runs(records))[column].cells]


def test_numbers_of_one_seed_are_not_bold(three: list[RunRecord]) -> None:
    columns = comparison_columns(compare_runs(three))
    assert not any(cell.best for column in columns for cell in column.cells)


def test_number_is_bold_if_it_differs_from_all_others_by_more_than_noise(tmp_path: Path) -> None:
    runs = {name: write_seeds(tmp_path, name, v) for name, v in (("a", FIRST), ("b", NEAR), ("c", FAR))}
    assert bold(runs["a"] + runs["c"], 0) == [True, False]  # 0.10 in each of three seeds
    assert bold(runs["a"] + runs["b"] + runs["c"], 0) == [False, False, False]  # a and b: 0.002 +- 0.040
    assert bold(runs["a"], 0) == [False]  # nothing to compare it with


def test_bold_numbers_are_those_of_complete_runs(tmp_path: Path) -> None:
    done = write_seeds(tmp_path, "fedavg", FIRST) + write_seeds(tmp_path, "b", FAR)
    diverged = write_seeds(tmp_path, "fedadam", (0.9, 0.92, 0.94), status="diverged")
    assert bold(done + diverged, 0) == [True, False, False]


def test_differences_to_the_best_have_a_paired_interval(tmp_path: Path) -> None:
    """The differences NEAR - FIRST are 0.01, -0.02, 0.005: mean -0.0017, s = 0.01607, 4.3027 s / sqrt(3)."""
    runs = write_seeds(tmp_path, "a", FIRST) + write_seeds(tmp_path, "b", NEAR)
    column = comparison_columns(compare_runs(runs))[1]
    assert column.title == "difference to best"
    assert [cell.text for cell in column.cells] == ["–", "−0.2 ± 4.0"]


def test_mse_is_displayed_in_thousandths(tmp_path: Path) -> None:
    values = (("fedavg", 0.0204), ("fedadam", 0.018))
    records = [
        write_run(tmp_path / name, name, (0.1, 0.05, last), metric="mse", better="lower")
        for name, last in values
    ]
    assert texts(records, 0) == ["18.00", "20.40"]


def test_several_seeds_are_displayed_with_the_half_width(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "fedadam", FIRST) + write_seeds(tmp_path, "fedavg", FAR)
    assert texts(records, 0)[0] == "72.0 ± 5.0 %"  # 4.3027 * 0.02 / sqrt(3) = 0.0497
    rows = {line.split()[0]: line.split() for line in print_table(records) if line.strip().startswith("fed")}
    assert rows["fedadam"][1:3] == ["72.0±5.0", "%"]
    assert rows["fedavg"][-1] == "3"  # seeds


def test_target_reached_by_some_seeds_is_not_the_best(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "fedavg", (0.5, 0.5, 0.9)) + write_seeds(
        tmp_path, "fedadam", (0.6, 0.7, 0.8)
    )
    column = comparison_columns(compare_runs(records))[4]  # the best mean is 0.7, so the target is 0.63
    assert [cell.text for cell in column.cells] == ["2.0 ± 0.0 (2 of 3 seeds)", "2 (1 of 3 seeds)"]
    assert not any(cell.best for cell in column.cells)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_table_fits_the_terminal_and_keeps_the_result(tmp_path: Path, width: int) -> None:
    records = write_seeds(tmp_path, "fedadagrad", FIRST, seconds=1234.5)
    records += write_seeds(tmp_path, "fedavg", FAR, seconds=3)
    lines = print_table(records, width=width)
    assert max(len(line.rstrip()) for line in lines) <= width
    assert not any("…" in line for line in lines)
    first, second = (next(line for line in lines if line.startswith(name)) for name in ("fedada", "fedavg"))
    assert "72.0±5.0 %" in first and "−10.0±0.0" in second  # no cell is wrapped
    assert ("Wider terminals also show:" in " ".join(" ".join(lines).split())) == (width < 100)


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("200", 200), (None, 140), ("", 140), ("x", 140)])
def test_tables_in_files_have_the_width_of_the_variable_columns(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert wide_console().width == width


def test_limit_is_the_maximum_number_of_rows(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path / str(at), "fedadam", (10.0**at, 1.0)) for at in range(3)]
    assert len([line for line in print_table(trials, limit=2) if "fedadam" in line]) == 2


def test_captions_explain_the_columns(three: list[RunRecord], tmp_path: Path) -> None:
    text = " ".join(" ".join(print_table(three)).replace("\N{NO-BREAK SPACE}", " ").split())
    assert "Accuracy: last" in text and "Rounds to 76.5%" in text and "MB sent: both" in text
    assert "±" not in text
    assert "±: 95 %" in " ".join(print_table(write_seeds(tmp_path, "a", FIRST)))


def test_captions_do_not_explain_hidden_columns(three: list[RunRecord]) -> None:
    text = " ".join(" ".join(print_table(three, width=40)).split())
    assert "Wider terminals also show: " in text and "MB sent: both" not in text
