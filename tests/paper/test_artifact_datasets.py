"""The label histogram of CIFAR-100."""

from __future__ import annotations

from pathlib import Path

from reproduction_runs import TINY, content_of, write_images

from fedopt_paper.data_sources import find_data_sources
from fedopt_paper.plan import RunPlan
from fedopt_paper.results import RunReader


def test_histogram_counts_different_labels_of_each_client(tmp_path: Path) -> None:
    store = write_images(tmp_path / "cifar100", "cifar100", [[1, 1, 2], [3, 3], [4, 5], [6, 7]])
    plan = RunPlan(TINY, find_data_sources(["cifar100"], str(store)), ("cifar100",))
    summary, histogram = content_of("labels", RunReader(plan, tmp_path)).tables
    assert [(cell.row, cell.ours) for cell in histogram.cells] == [("1", 1), ("2", 3)]
    assert {cell.column: cell.ours for cell in summary.cells}["median"] == 2
    assert {cell.label for cell in summary.cells} == {"other sample"}
