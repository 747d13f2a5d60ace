"""Heat maps from runs written by hand."""

from __future__ import annotations

from pathlib import Path

from reproduction_runs import content_of, make_reader, write_run


def test_heat_map_has_its_cells_and_counts_missing_runs(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "emnist_cr")
    for run, value in zip(
        reader.plan.heat_map("emnist_cr", "fedavg"), (0.80, 0.795, 0.70, None), strict=True
    ):
        write_run(reader, run, value, status="done" if value else "diverged")
    tuning, *maps = content_of("heatmaps_emnist_cr", reader).tables
    first, second = "log10 η_l = −1.5", "log10 η_l = −1"
    assert [(cell.row, cell.column, cell.ours_text) for cell in maps[4].cells] == [
        ("0", first, "79.5"),  # the largest server rate is at the top
        ("0", second, "diverged"),
        ("−0.5", first, "80.0"),
        ("−0.5", second, "70.0"),
    ]
    assert [table.title.partition(":")[0] for table in maps[1:4:2]] == [
        "EMNIST CR, FedAdam, τ = 1e−3",
        "EMNIST CR, FedAvgM",
    ]
    states = {cell.row: cell.state for cell in tuning.cells if cell.column.startswith("near")}
    assert (states["FedAvg"], states["FedAdam"]) == ("4 of 4 trials done", "0 of 4 trials done")


def test_ease_of_tuning_compares_all_optimizers_with_the_same_best_run(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "emnist_cr")
    results = {"fedavg": (0.80, 0.795, 0.70, None), "fedadam": (0.85, 0.845, 0.81, 0.2)}
    for method in ("fedadagrad", "fedadam", "fedyogi", "fedavgm", "fedavg"):
        runs = reader.plan.heat_map("emnist_cr", method)
        for run, value in zip(runs, results.get(method, (0.5,) * 4), strict=True):
            write_run(reader, run, value, status="done" if value else "diverged")
    tuning = content_of("heatmaps_emnist_cr", reader).tables[0]
    near, better = (
        {cell.row: (cell.ours, cell.detail) for cell in tuning.cells if cell.column.startswith(start)}
        for start in ("near", "better")
    )
    assert (near["FedAvg"], near["FedAdam"]) == ((0.0, "(0 of 4)"), (50.0, "(2 of 4)"))  # 85 and 84.5
    assert (better["FedAvg"], better["FedAdam"]) == ((None, ""), (75.0, "(3 of 4)"))  # above 80
