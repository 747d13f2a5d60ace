"""Heat maps from runs written by hand."""

from __future__ import annotations

from pathlib import Path

from reproduction_runs import content_of, make_reader, write_run


def test_heat_map_has_its_cells_and_the_share_near_the_best(tmp_path: Path) -> None:
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
    share = {cell.row: cell for cell in tuning.cells if cell.column.startswith("share")}
    assert (share["FedAvg"].ours, share["FedAvg"].detail) == (50.0, "(2 of 4)")  # 80 and 79.5 of four
