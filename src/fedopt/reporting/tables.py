"""The tables of the report as plain data: results and differing settings."""

from __future__ import annotations

import re
from typing import NamedTuple

from fedopt.analysis.labels import differing_settings
from fedopt.analysis.summary import BEST, NOISE, UNKNOWN, WORSE, Comparison
from fedopt.display.table import NumberColumn, comparison_columns
from fedopt.formatting import ABSENT, format_setting
from fedopt.reporting.line_selection import MAX_NAMED

MAX_SETTING_COLUMNS = 4  # of the results
VERDICT_ORDER = (BEST, NOISE, WORSE, UNKNOWN)


class TableCell(NamedTuple):
    text: str
    sort_key: float | str = ""
    kind: str = ""  # CSS class
    tooltip: str = ""


class ResultColumn(NamedTuple):
    """A sortable column: the order on the first click, and a cell for each configuration."""

    title: str
    first_order: str
    cells: list[TableCell]
    is_sorted: bool = False


def result_columns(comparison: Comparison) -> list[ResultColumn]:
    """Return the columns of the results: settings of a grid, numbers, verdicts and seeds."""
    settings = [
        ResultColumn(key, "ascending", [_setting_cell(value) for value in values])
        for key, values in setting_columns(comparison).items()
    ]
    value, *numbers = [_number_column(column) for column in comparison_columns(comparison)]
    columns = [*settings, value._replace(is_sorted=True)]
    if not comparison.has_several_seeds:
        return columns + numbers
    verdicts = [_verdict_cell(verdict) for verdict in comparison.verdicts()]
    seeds = [len(summary.group.counted) for summary in comparison.summaries]
    return [
        *columns,
        ResultColumn("against best", "ascending", verdicts),
        *numbers,
        ResultColumn("seeds", "descending", [TableCell(str(count), count) for count in seeds]),
    ]


def setting_columns(comparison: Comparison) -> dict[str, list[object]]:
    """Return the settings of a grid, which become columns of the results."""
    summaries = comparison.summaries
    settings = differing_settings([summary.record for summary in summaries])
    settings.pop("algorithm", None)
    if any(key.endswith(".optimizer") or None in values for key, values in settings.items()):
        # Settings that only some algorithms have follow from the algorithm. Keep those that vary within one.
        algorithms = {summary.record.label for summary in summaries}
        varying = {
            key
            for algorithm in algorithms
            for key in differing_settings([s.record for s in summaries if s.record.label == algorithm])
        }
        settings = {key: values for key, values in settings.items() if key in varying}
    return settings if len(summaries) > MAX_NAMED and 1 <= len(settings) <= MAX_SETTING_COLUMNS else {}


def setting_rows(comparison: Comparison) -> dict[str, list[TableCell]]:
    """Return the settings in which the configurations differ, with a cell for each configuration."""
    summaries = comparison.summaries
    settings = differing_settings([summary.record for summary in summaries])
    settings.pop("algorithm", None)  # it is part of the label
    seeds = [", ".join(map(str, summary.group.seeds)) for summary in summaries]
    rounds = [summary.record.rounds for summary in summaries]
    settings |= {"seed": seeds} if len(set(seeds)) > 1 else {}
    settings |= {"rounds": rounds} if len(set(rounds)) > 1 else {}
    return {key: [_setting_cell(value) for value in values] for key, values in settings.items()}


def _number_column(column: NumberColumn) -> ResultColumn:
    title = re.sub(r" (to|the) ", "\u00a0\\1 ", column.title)  # break titles into at most two lines
    cells = [
        TableCell(cell.text, kind="absent")
        if cell.number is None
        else TableCell(cell.text, cell.number, "best" if cell.best else "")
        for cell in column.cells
    ]
    return ResultColumn(title, "descending" if column.higher_is_better else "ascending", cells)


def _setting_cell(value: object) -> TableCell:
    """Return the cell of a setting. The tooltip shows floats exactly: 10^-1.5 is displayed as 0.03162."""
    if value is None:
        return TableCell(ABSENT, kind="absent")
    return TableCell(format_setting(value), str(value), "", repr(value) if isinstance(value, float) else "")


def _verdict_cell(verdict: str) -> TableCell:
    order = VERDICT_ORDER.index(verdict) if verdict else ""
    return TableCell(verdict or ABSENT, order, "verdict")
