"""Render and write the report: one HTML file with charts, heat maps, tables and commands.

The file is self-contained. It includes the charting library, and its content security policy forbids all
requests. The same runs give the same file.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedopt.analysis.summary import compare_runs
from fedopt.display.html import render_template
from fedopt.display.table import describe_columns
from fedopt.errors import RunError, UserError
from fedopt.files import disk_errors, write_atomically
from fedopt.formatting import metric_unit
from fedopt.reporting.charts import chart_data, legend_entries, smoothing_window
from fedopt.reporting.clients import clients_section
from fedopt.reporting.heatmaps import heat_maps
from fedopt.reporting.line_styles import MAX_NAMED, select_lines
from fedopt.reporting.overview import describe_result, page_facts
from fedopt.reporting.tables import result_columns, setting_columns, setting_rows
from fedopt.runs.records import LAST_ROUNDS, RunRecord

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # another path does not help


def write_report(records: Sequence[RunRecord], path: Path, title: str) -> None:
    """Write the report on `records` to `path` atomically."""
    text = render_report(records, title)
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file, such as {path / 'report.html'}")
    file = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
    if file is not None:
        raise UserError(f"cannot write {path}: {file} is a file, not a directory; choose another path")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except RunError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FULL:
            raise
        raise UserError(f"{error}; choose another path") from error


def render_report(records: Sequence[RunRecord], title: str) -> str:
    """Return the report on `records` as HTML."""
    comparison = compare_runs(records)
    window, selection = smoothing_window(records), select_lines(comparison)
    return render_template(
        "fedopt.reporting",
        "report.html.j2",
        title=title,
        synthetic=any(record.data == "synthetic" for record in records),
        facts=page_facts(comparison),
        result=describe_result(comparison),
        comparison=comparison,
        unit=metric_unit(comparison.metric),
        selection=selection,
        legend=legend_entries(selection),
        window=window,
        last_rounds=LAST_ROUNDS,
        heat_maps=heat_maps(records),
        clients=clients_section(records),
        columns_note=describe_columns(comparison),
        columns=result_columns(comparison),
        has_setting_columns=bool(setting_columns(comparison)),
        settings=setting_rows(comparison),
        max_listed=MAX_NAMED,
        chart_data=chart_data(comparison, selection, window),
        plotly=Markup(get_plotlyjs()),
    )
