"""Render and write the report: one HTML file with charts, heat maps, tables and commands.

The file is self-contained, and its content security policy forbids all requests. The same runs give the same
file. Charts are drawn on the server; a script makes them interactive.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedopt.analysis.summary import Rule, compare_runs
from fedopt.display.html import render_template
from fedopt.errors import RunError, UserError
from fedopt.files import disk_errors, write_atomically
from fedopt.formatting import metric_unit
from fedopt.reporting import chart_drawing
from fedopt.reporting.charts import Chart, run_charts, smoothing_window
from fedopt.reporting.clients import clients_section
from fedopt.reporting.heatmaps import heat_maps
from fedopt.reporting.line_selection import MAX_NAMED, select_lines
from fedopt.reporting.overview import describe_result, page_facts
from fedopt.reporting.sweep_view import sweep_view
from fedopt.reporting.tables import result_columns, results_caption, setting_columns, setting_rows
from fedopt.runs.records import RunRecord

MAX_ROWS = 100  # configurations in the results and commands; more would make the page large
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # another path does not help


def write_report(records: Sequence[RunRecord], path: Path, title: str, rule: Rule = "last") -> None:
    """Write the report on `records` to `path` atomically."""
    text = render_report(records, title, rule)
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


def render_report(
    records: Sequence[RunRecord],
    title: str,
    rule: Rule = "last",
    version: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return the report on `records` as HTML, with `notes` in its header.

    With a `version`, it is a live page, which asks its server for newer versions.
    """
    comparison, sweep = compare_runs(records, rule), sweep_view(records)
    selection = select_lines(comparison, sweep.selected_runs if sweep else ())
    charts = run_charts(comparison, selection, smoothing_window(records))
    maps = heat_maps(records)
    return render_template(
        "fedopt.reporting",
        "report.html.j2",
        title=title,
        version=version,
        notes=notes,
        synthetic=any(record.data == "synthetic" for record in records),
        facts=page_facts(comparison),
        result=describe_result(comparison, sweep),
        is_sweep=sweep is not None,
        comparison=comparison,
        unit=metric_unit(comparison.metric),
        selection=selection,
        charts=charts,
        heat_maps=maps,
        draw_chart=chart_drawing.draw_chart,
        clients=clients_section(records),
        results_caption=results_caption,
        columns=result_columns(comparison),
        has_setting_columns=bool(setting_columns(comparison)),
        settings=setting_rows(comparison),
        max_listed=MAX_NAMED,
        max_shown=MAX_ROWS,
        script_data=_script_data([*charts, *([maps.sorted_trials] if maps else [])]),
    )


def _script_data(charts: Sequence[Chart]) -> dict[str, Any]:
    """Return the data of the page's script: the charts, and the layout of a drawing."""
    layout = {
        "top": chart_drawing.TOP,
        "right": chart_drawing.RIGHT,
        "bottom": chart_drawing.BOTTOM,
        "tickSpacing": chart_drawing.TICK_SPACING,
        "digitWidth": chart_drawing.DIGIT_WIDTH,
        "markers": chart_drawing.MARKERS,
        "bandShare": chart_drawing.BAND_SHARE,
    }
    return {"layout": layout, "charts": [chart.document() for chart in charts]}
