"""The tables of the report as plain data: results and differing settings."""

from __future__ import annotations

from typing import NamedTuple

from fedopt.analysis.labels import differing_settings
from fedopt.analysis.summary import TARGET_MARGIN, Comparison
from fedopt.display.table import NumberColumn, comparison_columns
from fedopt.formatting import ABSENT, format_setting
from fedopt.reporting.line_selection import MAX_NAMED
from fedopt.runs.records import LAST_ROUNDS

MAX_SETTING_COLUMNS = 4  # of the results
_TOOLTIPS = {  # by the start of the title
    "mean of": f"Mean over the evaluations of these rounds. The paper's tables use the last {LAST_ROUNDS}.",
    "difference": "Difference to the best configuration, paired by seed; ±: its 95 % confidence interval.",
    "train loss": f"Mean over the last {LAST_ROUNDS} rounds, or over all rounds of a shorter run.",
    "rounds to": f"First evaluation within {TARGET_MARGIN * 100:.0f} % of the best result, if the following "
    f"evaluation confirms it. {ABSENT}: not reached or not confirmed.",
    "MB sent": "Megabytes sent in both directions, all clients.",
    "MB to": f"Megabytes sent until the target is reached. {ABSENT}: not reached or not confirmed.",
    "seconds": "Duration of the run.",
    "rejected": "Clients whose loss or update was not finite. A configuration with rejected clients in its "
    f"last {LAST_ROUNDS} rounds ranks behind all others.",
}


class TableCell(NamedTuple):
    text: str
    sort_key: float | str = ""
    kind: str = ""  # CSS class
    tooltip: str = ""
    note: str = ""  # below the text


class ResultColumn(NamedTuple):
    """A sortable column: the order on the first click, and a cell for each configuration."""

    title: str
    first_order: str
    cells: list[TableCell]
    is_sorted: bool = False
    tooltip: str = ""


def result_columns(comparison: Comparison) -> list[ResultColumn]:
    """Return the columns of the results: settings of a grid, numbers and seeds."""
    settings = [
        ResultColumn(key, "ascending", [_setting_cell(value) for value in values])
        for key, values in setting_columns(comparison).items()
    ]
    value, *numbers = [_number_column(column) for column in comparison_columns(comparison)]
    columns = [*settings, value._replace(is_sorted=True)]
    if not comparison.has_several_seeds:
        return columns + numbers
    difference, *others = numbers
    cells = zip(difference.cells, comparison.verdicts(), strict=True)
    seeds = [len(summary.group.counted) for summary in comparison.summaries]
    return [
        *columns,
        difference._replace(cells=[cell._replace(note=verdict) for cell, verdict in cells]),
        *others,
        ResultColumn("seeds", "descending", [TableCell(str(count), count) for count in seeds]),
    ]


def results_caption(comparison: Comparison) -> str:
    """Return one line about the order of the rows and the marks. Tooltips explain the columns."""
    rule = "the mean of the last rounds" if comparison.best.rule == "paper" else "the last evaluation"
    if not comparison.has_several_seeds:
        return f"Ranked by {rule}, one seed each. Point at a heading for its meaning."
    marks = "±: 95 % confidence interval. Bold: best, and distinguishable from all others."
    return f"Ranked by {rule}. {marks}"


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
    cells = [
        TableCell(cell.text, kind="absent")
        if cell.number is None
        else TableCell(cell.text, cell.number, "best" if cell.best else "")
        for cell in column.cells
    ]
    order = "descending" if column.higher_is_better else "ascending"
    tooltip = next((text for start, text in _TOOLTIPS.items() if column.title.startswith(start)), "")
    return ResultColumn(
        column.title, order, cells, tooltip=tooltip or "The task's metric at the last evaluation."
    )


def _setting_cell(value: object) -> TableCell:
    """Return the cell of a setting. The tooltip shows floats exactly: 10^-1.5 is displayed as 0.03162."""
    if value is None:
        return TableCell(ABSENT, kind="absent")
    return TableCell(format_setting(value), str(value), "", repr(value) if isinstance(value, float) else "")
