"""The table of centralized training and learning-rate decay, from runs written by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from reproduction_runs import TINY, content_of, make_reader, write_run

CR = "emnist_cr"


def test_columns_pair_centralized_and_federated_optimizers(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR)
    for run, loss, value in zip(reader.plan.central_sweep("adam"), (0.2, 0.1), (0.90, 0.85), strict=True):
        write_run(reader, run, value, train_loss=loss)
    for run in reader.plan.decay_sweep("fedadam"):
        write_run(reader, run, 0.862, train_loss=1.0)
    write_run(reader, reader.plan.published(CR, "fedadam"), 0.8575)
    (table,) = content_of("decay", reader).tables
    column = {cell.row: cell for cell in table.cells if cell.column == "Adam / FedAdam"}
    assert [column[row].ours for row in column] == pytest.approx([85.0, 85.75, 86.2])
    assert [column[row].ours_bold for row in column] == [False, True, True]  # 85.75 is 0.45 below 86.2
    assert column["Centralized"].detail == "(log10 η_l = −2.5)"


def test_centralized_rates_are_selected_by_the_last_tenth_of_the_epochs(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR, scale=replace(TINY, epochs=20, width=3))
    # the first is best for 18 epochs, the second in the last two; the third is worse
    losses = ([0.1] * 18 + [0.9] * 2, [0.8] * 20, [2.0] * 20)
    for run, own, value in zip(reader.plan.central_sweep("sgd"), losses, (0.6, 0.7, 0.8), strict=True):
        path = write_run(reader, run, value)
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            if line["split"] == "train":
                line["loss"] = own[line["round"] - 1]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    content = content_of("decay", reader)
    cell = content.tables[0].cell("Centralized", "SGD / FedAvg")
    assert cell is not None and cell.ours == pytest.approx(70.0)
    assert cell.detail == "(log10 η_l = −1)"  # -1.5, -1, -0.5: the middle
    notes = " ".join(content.notes)
    for part in ("prints no grid", "over the last 2 epochs", "tau = 1e-3", "first 10 writers"):
        assert part in notes


def test_centralized_rate_at_the_edge_of_the_grid_is_noted(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR, scale=replace(TINY, width=3))
    for run, loss in zip(reader.plan.central_sweep("sgd"), (0.5, 0.6, 0.7), strict=True):
        write_run(reader, run, train_loss=loss)
    cell = content_of("decay", reader).tables[0].cell("Centralized", "SGD / FedAvg")
    assert cell is not None and cell.detail.startswith("(log10 η_l = −1.5, at the edge of the grid")
