"""The header of the report: facts about the runs, and the result in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fedopt.analysis.headline import headline
from fedopt.analysis.seeds import run_seed
from fedopt.analysis.selection import describe_grid_selection
from fedopt.analysis.summary import Comparison
from fedopt.display.table import describe_data
from fedopt.formatting import ABSENT
from fedopt.reporting.line_selection import MAX_NAMED
from fedopt.reporting.sweep_view import SweepView
from fedopt.runs.records import RunRecord

MAX_TITLE_NAMES = 3  # algorithms in the title


def default_title(records: Sequence[RunRecord]) -> str:
    """Return the algorithms and the task, for a page without a title of its own."""
    names = list(dict.fromkeys(record.label for record in records))
    methods = ", ".join(names) if len(names) <= MAX_TITLE_NAMES else f"{len(names)} federated optimizers"
    return f"{methods} on {records[0].info['task']}"


def page_facts(comparison: Comparison) -> dict[str, str]:
    """Return the facts of the header by name."""
    records = comparison.records
    seeds = sorted({run_seed(record) for record in records})
    dates = sorted({str(record.info.get("started", ABSENT))[:10] for record in records})
    parameters = {count for record in records if isinstance(count := record.info.get("params"), int)}
    facts = {
        "Task": _distinct(records, "task"),
        "Data": describe_data(records),
        "Runs": str(len(records)),
        "Configurations": str(len(comparison.summaries)) if comparison.has_several_seeds else "",
        "Rounds": _range(sorted({record.rounds for record in records})),
        "Seed" if len(seeds) == 1 else "Seeds": _range(seeds),
        "Parameters": ", ".join(f"{count:,}" for count in sorted(parameters)) or ABSENT,
        "Date": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "fedopt": _distinct(records, "fedopt"),
    }
    return {name: text for name, text in facts.items() if text}


def describe_result(comparison: Comparison, sweep: SweepView | None = None) -> str:
    """Return the best result with its margin and certainty, and the failures.

    For a sweep, these are the sentences of the terminal: the trial that its rule selects, the best metric,
    and a warning if it lies at the edge of the grid.
    """
    if sweep is None:
        return headline(comparison) + _failures(comparison)
    return " ".join(describe_grid_selection(sweep.grids, sweep.select, sweep.metric)) + _failures(comparison)


def _failures(comparison: Comparison) -> str:
    text = ""
    for state in ("diverged", "failed", "pruned"):
        labels = [summary.label for summary in comparison.summaries if summary.state == state]
        if labels:
            total = len(comparison.summaries)
            listed = ", ".join(labels) if total <= MAX_NAMED else f"{len(labels)} of {total}"
            text += f" {state.capitalize()}: {listed}."
    return text


def _distinct(records: Sequence[RunRecord], key: str) -> str:
    return ", ".join(dict.fromkeys(str(record.info.get(key, ABSENT)) for record in records))


def _range(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]}"
