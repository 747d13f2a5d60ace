"""The tables of the report as plain data: results, differing settings and commands."""

from __future__ import annotations

import re
from typing import NamedTuple

from fedopt.analysis.labels import differing_settings
from fedopt.analysis.seeds import run_seed
from fedopt.analysis.summary import BEST, NOISE, UNKNOWN, WORSE, Comparison, Summary
from fedopt.display.table import comparison_columns, describe_columns, describe_noise
from fedopt.formatting import ABSENT, format_setting
from fedopt.report.line_styles import MAX_NAMED, LineSelection, LineStyle

MAX_SETTING_COLUMNS = 4  # of the results
MAX_ROWS = 16  # a longer table scrolls
VERDICT_ORDER = (BEST, NOISE, WORSE, UNKNOWN)


class TableCell(NamedTuple):
    text: str
    sort_key: float | str = ""
    kind: str = ""  # CSS class
    tooltip: str = ""


class TableHead(NamedTuple):
    """A column head that sorts: the order on the first click, and the current order."""

    title: str
    first_order: str
    order: str = "none"


class RunName(NamedTuple):
    """A configuration's name with the style of its line and its state."""

    label: str
    style: LineStyle | None
    note: str
    failed: bool


class ResultsTable(NamedTuple):
    note: str
    heads: list[TableHead]
    rows: list[tuple[str, RunName, list[TableCell]]]  # sort key, name and cells
    scrolls: bool


class SettingsTable(NamedTuple):
    """Settings in rows, or in columns if there are many configurations."""

    keys: list[str]
    labels: list[str]
    cells: list[list[TableCell]]  # by setting, then by configuration
    transposed: bool


class RunCommand(NamedTuple):
    name: RunName
    message: str
    command: str
    fingerprint: str


def run_name(summary: Summary, selection: LineSelection, label: str) -> RunName:
    return RunName(label, selection.style(summary), summary.note, summary.failed)


def results_table(comparison: Comparison, selection: LineSelection) -> ResultsTable:
    """Return the sortable table of results, best first."""
    summaries, several = comparison.summaries, comparison.has_several_seeds
    settings, columns = _setting_columns(comparison), comparison_columns(comparison)
    heads = [TableHead("run", "ascending"), *(TableHead(key, "ascending") for key in settings)]
    cells = [[_setting_cell(value) for value in values] for values in settings.values()]
    for column in columns:
        order = "descending" if column.better == "higher" else "ascending"
        title = re.sub(r" (to|the) ", "\u00a0\\1 ", column.title)  # break titles into at most two lines
        heads.append(TableHead(title, order, order if column is columns[0] else "none"))
        cells.append(
            [
                TableCell(cell.text, "", "absent")
                if cell.number is None
                else TableCell(cell.text, cell.number, "best" if cell.best else "")
                for cell in column.cells
            ]
        )
        if several and column is columns[0]:
            heads.append(TableHead("against best", "ascending"))
            cells.append([_verdict_cell(verdict) for verdict in comparison.verdicts()])
    if several:
        heads.append(TableHead("seeds", "descending"))
        counts = [len(summary.group.counted) for summary in summaries]
        cells.append([TableCell(str(count), count) for count in counts])
    rows = [
        (s.label, run_name(s, selection, s.record.label if settings else s.label), list(row))
        for s, row in zip(summaries, zip(*cells, strict=True), strict=True)
    ]
    unit = "Each row is one configuration." if several else "Each row is one run with one seed."
    notes = [describe_columns(comparison), describe_noise(comparison), "Bold: the best of a column.", unit]
    return ResultsTable(" ".join(filter(None, notes)), heads, rows, len(rows) > MAX_ROWS)


def settings_table(comparison: Comparison) -> SettingsTable:
    """Return the settings in which the configurations differ."""
    summaries = comparison.summaries
    settings = differing_settings([summary.record for summary in summaries])
    settings.pop("algorithm", None)  # it is part of the label
    extra: dict[str, list[object]] = {
        "seed": [", ".join(str(run_seed(record)) for record in s.group.records) for s in summaries],
        "rounds": [summary.record.rounds for summary in summaries],
    }
    settings |= {key: values for key, values in extra.items() if len(set(values)) > 1}
    cells = [[_setting_cell(value) for value in values] for values in settings.values()]
    return SettingsTable(list(settings), [s.label for s in summaries], cells, len(summaries) > MAX_NAMED)


def run_commands(comparison: Comparison, selection: LineSelection) -> list[RunCommand]:
    """Return the command of each run and the hash of its final parameters."""
    commands = []
    for summary in comparison.summaries:
        for record in summary.group.records:
            seed = f", seed {run_seed(record)}" if len(summary.group.records) > 1 else ""
            commands.append(
                RunCommand(
                    run_name(summary, selection, summary.label + seed),
                    str(record.info.get("message", "")),
                    str(record.info.get("command") or "(the command was not recorded)"),
                    str(record.info.get("x_sha256", "")),
                )
            )
    return commands


def _setting_columns(comparison: Comparison) -> dict[str, list[object]]:
    """Return the settings of a grid, which become columns of the results."""
    summaries = comparison.summaries
    settings = differing_settings([summary.record for summary in summaries])
    settings.pop("algorithm", None)
    if any(key.endswith(".optimizer") or None in values for key, values in settings.items()):
        # Settings that only some algorithms have follow from the algorithm. Keep those that vary within one.
        settings = {key: values for key, values in settings.items() if _varies_within(key, summaries)}
    return settings if len(summaries) > MAX_NAMED and 1 <= len(settings) <= MAX_SETTING_COLUMNS else {}


def _varies_within(key: str, summaries: list[Summary]) -> bool:
    """Return whether a setting differs between configurations of one algorithm."""
    algorithms = {summary.record.label for summary in summaries}
    return any(
        key in differing_settings([s.record for s in summaries if s.record.label == algorithm])
        for algorithm in algorithms
    )


def _setting_cell(value: object) -> TableCell:
    """Return the cell of a setting. The tooltip shows floats exactly: 10^-1.5 is displayed as 0.03162."""
    if value is None:
        return TableCell(ABSENT, kind="absent")
    return TableCell(format_setting(value), str(value), "", repr(value) if isinstance(value, float) else "")


def _verdict_cell(verdict: str) -> TableCell:
    order = VERDICT_ORDER.index(verdict) if verdict else ""
    return TableCell(verdict or ABSENT, order, "verdict")
