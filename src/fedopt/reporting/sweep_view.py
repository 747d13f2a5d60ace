"""What the report shows of a sweep: its grids, the rule that selects trials, and the metric of the maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedopt.analysis.heatmap import RateGrid, find_grids
from fedopt.analysis.run_numbers import TRAIN_LOSS
from fedopt.runs.discover import selection_of
from fedopt.runs.records import RunRecord


class SweepView(NamedTuple):
    """The grids of a sweep."""

    grids: list[RateGrid]
    select: str  # train_loss or a metric
    metric: str  # of the maps

    @property
    def selected_runs(self) -> set[Path]:
        """The runs of the trials that the rule selects, one trial per method."""
        trials = [grid.selected_by(self.select) for grid in self.grids]
        return {record.path for trial in trials if trial for record in trial.group.records}


def sweep_view(records: Sequence[RunRecord]) -> SweepView | None:
    """Return the sweep to which all records belong, or None."""
    select = selection_of(records)
    if select is None:
        return None
    metric = shown_metric(records, select)
    grids = find_grids(records, metric)
    return SweepView(grids, select, metric) if grids and select in (TRAIN_LOSS, metric) else None


def shown_metric(records: Sequence[RunRecord], select: str | None) -> str:
    """Return the selection criterion of the sweep if it is a test metric, else the task's metric."""
    evaluated = any(select in line for record in records for line in record.test[-1:])
    return select if select and select != TRAIN_LOSS and evaluated else records[0].metric
