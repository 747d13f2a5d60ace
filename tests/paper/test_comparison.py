"""Bold numbers, and the CSV form of comparison tables."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fedopt_paper.comparison import ComparisonCell, ComparisonTable, mark_bold, near_best, to_csv


@pytest.mark.parametrize(
    ("values", "higher", "relative", "bold"),
    [
        ([57.5, 57.0, 57.01], True, False, [True, False, True]),  # exactly half a point is not near
        ([4.2, 0.98, 0.98489, 0.985], False, True, [False, True, True, False]),  # 0.98 x 1.005 = 0.9849
        ([None, None], True, False, [False, False]),
        ([None, 1.0], True, False, [False, True]),
    ],
)
def test_bold_is_less_than_half_a_point_from_the_best(
    values: list[float | None], higher: bool, relative: bool, bold: list[bool]
) -> None:
    assert near_best([(value, True) for value in values], higher, relative) == bold


def test_unranked_cell_can_be_bold_but_is_not_the_best() -> None:
    values = {"a": 40.0, "b": 39.6, "c": 39.4}
    cells = [ComparisonCell("t", name, ours, 50.0, group="t") for name, ours in values.items()]
    marked = mark_bold([*cells, ComparisonCell("t", "scaffold", 60.0, group="t", ranked=False)])
    assert [cell.ours_bold for cell in marked] == [True, True, False, True]
    assert not any(cell.paper_bold for cell in marked)  # the paper's bold is as printed


def test_csv_labels_synthetic_numbers_next_to_the_papers(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "so_lr" / "fedavg-1"
    cells = (
        ComparisonCell("SO LR", "FedAvg", 31.0, 30.0, label="synthetic", run=run),
        ComparisonCell("SO NWP", "FedAvg", None, 19.5, label=""),
    )
    text = to_csv([ComparisonTable("t", cells)], tmp_path / "performance")
    head, first, second = csv.reader(io.StringIO(text))
    assert head[4:8] == ["paper", "ours (synthetic)", "data", "difference"]
    assert first[4:8] == ["30", "31", "synthetic", "1"]
    assert first[-1] == "../runs/so_lr/fedavg-1"
    assert second[4:8] == ["19.5", "", "as in the paper", ""]
