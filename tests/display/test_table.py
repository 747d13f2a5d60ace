"""The comparison table of the terminal."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from written import write_run, write_seeds, write_trial

from fedopt.analysis.summary import compare_runs
from fedopt.display.table import comparison_columns, comparison_table, describe_noise, explanation
from fedopt.runs.records import RunRecord

FIRST, NEAR, FAR = (0.70, 0.72, 0.74), (0.71, 0.70, 0.745), (0.60, 0.62, 0.64)


def print_table(records: list[RunRecord], width: int = 100, limit: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(comparison_table(records, limit))
    return capture.get().splitlines()


def texts(records: list[RunRecord], column: int) -> list[str]:
    return [cell.text for cell in comparison_columns(compare_runs(records))[column].cells]


def test_rows_are_sorted_and_scaled_and_the_title_names_the_data(three: list[RunRecord]) -> None:
    title, *lines = print_table(three)
    assert title.strip() == "emnist_cr, 4 rounds, synthetic data"
    rows = [line.split() for line in lines if line.strip().startswith(("fed", "scaffold"))]
    assert [row[0] for row in rows] == ["fedyogi", "scaffold", "fedavg"]
    assert rows[0] == ["fedyogi", "80.0", "%", "85.0", "%", "0.500", "2", "40.0", "4.00"]
    assert rows[2] == ["fedavg", "60.0", "%", "70.0", "%", "0.900", "–", "40.0", "3.00"]


def test_best_number_of_a_column_is_marked_unless_most_share_it(three: list[RunRecord]) -> None:
    best = [[cell.best for cell in column.cells] for column in comparison_columns(compare_runs(three))]
    assert best[0] == [True, False, False]
    assert best[4] == [False, False, False]  # two of three share the smallest number of MB


def test_best_number_is_marked_among_complete_runs_only(tmp_path: Path) -> None:
    done = [write_run(tmp_path / name, name, value=value) for name, value in (("fedavg", 0.5), ("b", 0.4))]
    diverged = write_run(tmp_path / "d", "fedadam", value=0.9, status="diverged")
    column = comparison_columns(compare_runs([*done, diverged]))[0]
    assert [cell.best for cell in column.cells] == [True, False, False]


def test_mse_is_displayed_in_thousandths(tmp_path: Path) -> None:
    values = (("fedavg", 0.0204), ("fedadam", 0.018))
    records = [write_run(tmp_path / n, n, value=v, metric="mse", better="lower") for n, v in values]
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
    column = comparison_columns(compare_runs(records))[3]  # the best mean is 0.7, so the target is 0.63
    assert [cell.text for cell in column.cells] == ["2.0 ± 0.0 (2 of 3 seeds)", "2 (1 of 3 seeds)"]
    assert not any(cell.best for cell in column.cells)


def test_table_of_several_seeds_fits_100_columns(tmp_path: Path) -> None:
    records = write_seeds(tmp_path, "fedadagrad", FIRST, seconds=1234.5)
    records += write_seeds(tmp_path, "fedavg", FAR, seconds=3)
    lines = print_table(records, width=100)
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert not any("…" in line for line in lines)
    first = next(line for line in lines if "fedadagrad" in line)
    assert "72.0±5.0 %" in first and first.split()[-1] == "3"  # no cell is wrapped


def test_limit_is_the_maximum_number_of_rows(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path / str(at), "fedadam", (10.0**at, 1.0)) for at in range(3)]
    assert len([line for line in print_table(trials, limit=2) if "fedadam" in line]) == 2


def test_explanation_states_what_is_known_about_noise(three: list[RunRecord], tmp_path: Path) -> None:
    assert "One seed each: differences may be noise." in explanation(three)
    assert "noise" not in explanation(three[:1])
    runs = [r for name, v in (("a", FIRST), ("b", NEAR), ("c", FAR)) for r in write_seeds(tmp_path, name, v)]
    text = describe_noise(compare_runs([*runs, write_trial(tmp_path / "d", "d", (0.1, 1.0), 0.5)]))
    assert "Within noise of the best, a: b (" in text
    assert text.endswith(": d.")  # one seed only
