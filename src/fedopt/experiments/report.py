"""One HTML file that compares runs of one task: charts, table, settings, commands.

The file needs nothing else, now or in ten years: the charting library is inside it, its content policy
forbids every request, and it says the same for the same runs (its date is that of the runs).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from plotly.offline import get_plotlyjs

from fedopt.experiments import report_page as page
from fedopt.experiments.records import RunRecord
from fedopt.experiments.report_template import CSS, SCRIPT
from fedopt.experiments.table import Summary, bytes_at, summarise, target_value, unit_of
from fedopt.files import disk_errors, write_atomically

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
SMOOTHING = 12  # the moving average spans a twelfth of the longest run ...
MAX_WINDOW = 25  # ... and never more rounds than this
WIDE_SPAN = 100.0  # values that span more than this factor get a logarithmic axis

Line = dict[str, Any]
Chart = dict[str, Any]
Axis = dict[str, Any]

FROM_ZERO: Axis = {"rangemode": "tozero", "tickformat": ",~r"}
ROUNDS: Axis = FROM_ZERO | {"title": "Round", "unifiedhovertitle": {"text": "round %{x}"}}
MEGABYTES: Axis = FROM_ZERO | {"title": "Communication (MB)"}


def write_report(records: Sequence[RunRecord], path: Path, title: str) -> None:
    """Write the report on `records` to `path`: whole or not at all, so that no reader sees half a page."""
    text = render(records, title)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def render(records: Sequence[RunRecord], title: str) -> str:
    """The whole page as text."""
    summaries = summarise(records)
    window = smoothing_window(records)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
{page.heading(title, records, summaries)}
<main>
<noscript><p>The charts need JavaScript; the tables below do not.</p></noscript>
<div class="charts">{figures(summaries, window)}</div>
{page.results(summaries)}
{page.differences(summaries)}
{page.commands(summaries)}
</main>
<script type="application/json" id="report-data">{script_json(chart_data(summaries, window))}</script>
<script>{get_plotlyjs()}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def figures(summaries: Sequence[Summary], window: int) -> str:
    """The frames of the three charts, which the page's script fills."""
    records = [summary.record for summary in summaries]
    name = unit_of(records[0].metric).name
    target = page.target_note(records)
    better = "Higher" if records[0].higher_is_better else "Lower"
    smooth = f"Mean of the last {window} rounds; faint: each round." if window > 1 else "Each round."
    sent = "Megabytes sent down and up, all clients together."
    frames = [
        page.figure(
            "metric-by-round", f"Test {name} by round", f"{better} is better.{target}", summaries, True
        ),
        page.figure("loss-by-round", "Train loss by round", smooth, summaries),
        page.figure("metric-by-megabytes", f"Test {name} by communication", sent + target, summaries),
    ]
    return "".join(frames)


def script_json(value: object) -> str:
    """JSON that can stand inside a script element: no `<`, so nothing in it can end that element.

    >>> script_json("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def chart_data(summaries: Sequence[Summary], window: int) -> dict[str, Any]:
    """What the page's script draws: the runs' line styles and three charts."""
    runs = [{"name": _plain(page.line_name(s)), **page.line_style(s.position)._asdict()} for s in summaries]
    records = [summary.record for summary in summaries]
    metric = [_metric_line(at, record) for at, record in enumerate(records)]
    sent = [_sent_line(at, record) for at, record in enumerate(records)]
    return {
        "runs": runs,
        "charts": [
            _metric_chart("metric-by-round", records, metric, ROUNDS, ""),
            _loss_chart(records, window),
            _metric_chart("metric-by-megabytes", records, sent, MEGABYTES, " after %{x:,.0f} MB"),
        ],
    }


def smoothing_window(records: Sequence[RunRecord]) -> int:
    """How many rounds the moving average of the train loss spans, one choice for all runs."""
    return max(1, min(MAX_WINDOW, max(record.rounds for record in records) // SMOOTHING))


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and up to `window - 1` before it, so that no point knows the future.

    >>> moving_average([1.0, 3.0, 5.0], 2)
    [1.0, 2.0, 4.0]
    """
    return [fmean(values[max(0, at + 1 - window) : at + 1]) for at in range(len(values))]


def _metric_line(run: int, record: RunRecord) -> Line:
    rounds, values = record.curve("test", record.metric)
    factor = unit_of(record.metric).factor
    return {"run": run, "x": rounds, "y": [value * factor for value in values]}


def _sent_line(run: int, record: RunRecord) -> Line:
    line = _metric_line(run, record)
    sent = [total / 1e6 for total in bytes_at(record, line["x"])]
    return line | {"x": sent, "y": line["y"][: len(sent)]}


def _metric_chart(name: str, records: Sequence[RunRecord], lines: list[Line], x: Axis, at: str) -> Chart:
    unit, target = unit_of(records[0].metric), target_value(records)
    title = f"Test {unit.name}" + (" (%)" if unit.suffix else "")
    return {
        "id": name,
        "lines": lines,
        "x": x,
        "y": _value_axis(title, lines, may_be_log=not records[0].higher_is_better),
        "target": None if target is None else target * unit.factor,
        "hover": f"%{{y:,.{unit.digits}f}}{unit.suffix}{at}",
        "hovermode": "closest" if at else "x unified",
    }


def _loss_chart(records: Sequence[RunRecord], window: int) -> Chart:
    curves = [record.curve("train", "loss") for record in records]
    lines: list[Line] = []
    if window > 1:  # first, so that they lie under the averages
        lines += [{"run": run, "x": x, "y": y, "faint": True} for run, (x, y) in enumerate(curves)]
    lines += [{"run": run, "x": x, "y": moving_average(y, window)} for run, (x, y) in enumerate(curves)]
    return {
        "id": "loss-by-round",
        "lines": lines,
        "x": ROUNDS,
        "y": _value_axis("Train loss", lines, may_be_log=True),
        "target": None,
        "hover": "%{y:.4~g}",
        "hovermode": "x unified",
    }


def _value_axis(title: str, lines: Sequence[Line], *, may_be_log: bool) -> Axis:
    """The vertical axis: logarithmic where losses span orders of magnitude, as a diverging run's do."""
    values = [value for line in lines for value in line["y"]]
    if may_be_log and values and min(values) > 0 and max(values) > WIDE_SPAN * min(values):
        return {"title": _plain(f"{title}, log scale"), "type": "log", "dtick": 1, "exponentformat": "power"}
    return {"title": _plain(title)}


def _plain(text: str) -> str:
    """`text` as plotly shows it literally: its labels read a subset of HTML."""
    return escape(text, quote=False)
