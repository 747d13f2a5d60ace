"""One HTML file over runs of one task: charts, heat maps, tables, settings, commands.

The file needs nothing else, now or in ten years: the charting library is inside it, its content policy
forbids every request, and it says the same for the same runs (its date is that of the runs).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from plotly.offline import get_plotlyjs

from fedopt.analysis.summary import summarise
from fedopt.errors import RunError, UserError
from fedopt.files import disk_errors, write_atomically
from fedopt.report.curves import chart_data, smoothing_window
from fedopt.report.heatmaps import heat_maps
from fedopt.report.line_styles import drawn
from fedopt.report.sections import commands, figures, heading
from fedopt.report.tables import differences, results
from fedopt.runs.records import RunRecord

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what another place would not mend
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_report(records: Sequence[RunRecord], path: Path, title: str) -> None:
    """Write the report on `records` to `path`: whole or not at all, so that no reader sees half a page."""
    text = render(records, title)
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file, such as {path / 'report.html'}")
    file = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
    if file is not None:
        raise UserError(f"cannot write {path}: {file} is a file and not a directory; choose another place")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except RunError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
            raise
        raise UserError(f"{error}; choose another place") from error


def render(records: Sequence[RunRecord], title: str) -> str:
    """The whole page as text."""
    summaries = summarise(records)
    window, shown = smoothing_window(records), drawn(summaries)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_part("style.css")}</style>
</head>
<body>
{heading(title, records, summaries)}
<main>
<noscript><p>The charts need JavaScript; the tables below do not.</p></noscript>
<div class="charts">{figures(summaries, shown, window)}</div>
{heat_maps(records)}
{results(summaries, shown)}
{differences(summaries)}
{commands(summaries, shown)}
</main>
<script type="application/json" id="report-data">{script_json(chart_data(summaries, shown, window))}</script>
<script>{get_plotlyjs()}</script>
<script>{_part("script.js")}</script>
</body>
</html>
"""


def _part(name: str) -> str:
    """The page's style sheet or script, which are files of their own and become part of every page."""
    return files("fedopt.report").joinpath(name).read_text(encoding="utf-8")


def script_json(value: object) -> str:
    """JSON that can stand inside a script element: no `<`, so nothing in it can end that element.

    >>> script_json("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")
