"""The best rates of a method in stored results, by the paper's rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from claims.markdown import number
from claims.results import Results
from fedopt.formatting import ABSENT
from fedopt.reports import RateGrid, RateTrial, find_grids, log10
from fedopt.runs.records import RunRecord


def joined_records(results: Results, names: Sequence[str]) -> list[RunRecord]:
    """Return the runs of several entries, each once.

    Runs of one grid may have been made on several machines. The checksum of imported data is left out,
    because it depended on the version of fedopt until 2026-11-17.
    """
    records = {record.path: record for name in names if name in results for record in results[name].records}
    return [record._replace(config=_without_checksum(record.config)) for record in records.values()]


def _without_checksum(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "data.manifest"}


def method_grids(records: Sequence[RunRecord]) -> dict[str, RateGrid]:
    """Return the grid of each method by the name of its algorithm."""
    return {grid.trials[0].group.records[0].label: grid for grid in find_grids(records)}


def best_points(results: Results, names: Sequence[str], method: str, count: int) -> list[RateTrial]:
    """Return the trials with the smallest mean training loss over the last 100 rounds, best first.

    The list is empty until all entries in `names` are complete: a later trial could be better.
    """
    if not all(name in results and results[name].complete for name in names):
        return []
    grid = method_grids(joined_records(results, names)).get(method)
    trials = [t for t in (grid.trials if grid else ()) if not t.state and t.train_loss is not None]
    return sorted(trials, key=lambda trial: trial.train_loss or 0.0)[:count]


def rates_text(records: Sequence[RunRecord]) -> str:
    """Return log10 of client rate, server rate and tau of the first run, or a dash."""
    if not records:
        return ABSENT
    rates = [records[0].config.get(key) for key in ("client.lr", "server.lr", "server.tau")]
    return ", ".join(number(log10(rate)) for rate in rates if rate is not None)
