"""The words and tables of the report page, as HTML.

Every string that comes from a file passes through `escape` on its way into the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fedopt.experiments.records import LAST_ROUNDS, RunRecord, config_differences
from fedopt.experiments.table import (
    ABSENT,
    Summary,
    columns,
    data_name,
    explanation,
    target_value,
    unit_of,
)

# Okabe and Ito's colours, which colour-blind readers can tell apart. Their yellow is left out, because it
# vanishes on white; their black is the page's ink, so that it is light on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "ink")
DASHES = ("solid", "7px,3px", "2px,3px", "11px,3px,2px,3px", "14px,4px", "5px,3px,2px,3px,2px,3px")
SYMBOLS = {  # plotly's name: the same shape for the legend
    "circle": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "square": "M-3.3-3.3h6.6v6.6h-6.6z",
    "diamond": "M0-4.8L4.8 0L0 4.8L-4.8 0z",
    "triangle-up": "M0-4.6L4.4 3.2H-4.4z",
    "cross": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "triangle-down": "M0 4.6L4.4-3.2H-4.4z",
    "pentagon": "M0-4.5L4.3-1.4L2.6 3.6H-2.6L-4.3-1.4z",
    "x": "M-4.3-2.1L-2.1-4.3L0-2.1L2.1-4.3L4.3-2.1L2.1 0L4.3 2.1L2.1 4.3L0 2.1L-2.1 4.3L-4.3 2.1L-2.1 0z",
}


class LineStyle(NamedTuple):
    """How a run's line is drawn: colour, dash and marker, any two of which would do."""

    colour: str
    dash: str
    symbol: str


def line_style(position: int) -> LineStyle:
    """The style of the run at `position`; the three cycles meet again only after 168 runs."""
    symbols = tuple(SYMBOLS)
    return LineStyle(
        COLOURS[position % len(COLOURS)],
        DASHES[position % len(DASHES)],
        symbols[position % len(symbols)],
    )


def swatch(position: int) -> str:
    """A short piece of a run's line, for legends and tables."""
    style = line_style(position)
    colour = "currentColor" if style.colour == "ink" else style.colour
    dashes = "" if style.dash == "solid" else f' stroke-dasharray="{style.dash.replace("px", "")}"'
    return (
        '<svg class="swatch" viewBox="-18 -7 36 14" aria-hidden="true">'
        f'<path d="M-18 0H18" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        f'<path d="{SYMBOLS[style.symbol]}" fill="{colour}"/></svg>'
    )


def heading(title: str, records: Sequence[RunRecord], summaries: Sequence[Summary]) -> str:
    """Title, badge, the facts that the runs share, and the result in one sentence."""
    synthetic = any(record.data == "synthetic" for record in records)
    badge = '<p class="badge">synthetic data</p>' if synthetic else ""
    facts = {
        "Task": _distinct(records, "task"),
        "Data": data_name(records),
        "Runs": str(len(records)),
        "Rounds": ", ".join(str(n) for n in sorted({record.rounds for record in records})),
        "Seed": _distinct(records, "seed"),
        "Parameters": _parameters(records),
        "Date": ", ".join(dict.fromkeys(str(record.info.get("started", ABSENT))[:10] for record in records)),
        "fedopt": _distinct(records, "fedopt"),
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    return (
        f'<header><h1>{escape(title)}</h1>{badge}<dl class="facts">{items}</dl>'
        f'<p class="lead">{escape(_lead(summaries))}</p></header>'
    )


def _distinct(records: Sequence[RunRecord], key: str) -> str:
    return ", ".join(dict.fromkeys(str(record.info.get(key, ABSENT)) for record in records))


def _parameters(records: Sequence[RunRecord]) -> str:
    counts = dict.fromkeys(record.info.get("params") for record in records)
    return ", ".join(f"{count:,}" if isinstance(count, int) else ABSENT for count in counts)


def _lead(summaries: Sequence[Summary]) -> str:
    best = summaries[0]
    if best.value is None or best.failed:
        return "No run has a result yet."
    unit = unit_of(best.record.metric)
    last = min(LAST_ROUNDS, best.record.rounds)
    mean = f"mean over the evaluations of the last {last} rounds"
    result = f"{best.label}, with {unit.name} {unit.text(best.value)} ({mean})"
    first = f"Best of {len(summaries)} runs: {result}." if len(summaries) > 1 else f"One run: {result}."
    failed = [summary.label for summary in summaries if summary.failed]
    return first + (f" Failed: {', '.join(failed)}." if failed else "")


def figure(name: str, title: str, note: str, summaries: Sequence[Summary], wide: bool = False) -> str:
    """A chart's frame: title, what is drawn, a legend whose entries hide and show runs, the place to draw."""
    entries = "".join(
        f'<button type="button" data-run="{at}" aria-pressed="true">{swatch(s.position)}'
        f"<span>{escape(line_name(s))}</span></button>"
        for at, s in enumerate(summaries)
    )
    label = f"{title}, a line for each of {len(summaries)} runs; the numbers are in the table of results."
    return (
        f'<figure class="card{" wide" if wide else ""}"><h2>{escape(title)}</h2>'
        f'<p class="quiet">{escape(note)}</p>'
        f'<div class="legend" role="group" aria-label="Runs shown in the charts">{entries}</div>'
        f'<div class="plot" id="{name}" role="img" aria-label="{escape(label)}"></div></figure>'
    )


def results(summaries: Sequence[Summary]) -> str:
    """The sortable table of the numbers."""
    shown = columns(summaries)
    records = [summary.record for summary in summaries]
    heads = '<th scope="col" aria-sort="none" data-first="ascending"><button type="button">run</button></th>'
    for at, column in enumerate(shown):
        first = "descending" if column.better == "higher" else "ascending"
        heads += (
            f'<th scope="col" aria-sort="{first if at == 0 else "none"}" data-first="{first}">'
            f'<button type="button">{escape(column.title)}</button></th>'
        )
    rows = ""
    for at, summary in enumerate(summaries):
        rows += f'<tr><th scope="row" data-value="{escape(summary.label)}">{_run_name(summary)}</th>'
        for column in shown:
            cell = column.cells[at]
            kind = "best" if cell.best else "absent" if cell.number is None else ""
            value = "" if cell.number is None else repr(cell.number)
            rows += f'<td class="{kind}" data-value="{value}">{escape(cell.text)}</td>'
        rows += "</tr>"
    return _section(
        "results",
        "Results",
        explanation(records) + " Bold: the best of a column. Each row is one run with one seed.",
        f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>',
    )


def differences(summaries: Sequence[Summary]) -> str:
    """The settings in which the runs differ, one row each."""
    found = config_differences([summary.record for summary in summaries])
    found.pop("algorithm", None)  # the column heads say it
    if not found:
        return (
            '<section><h2>Settings that differ</h2><p class="quiet">None, beside the algorithm.</p></section>'
        )
    heads = "".join(f'<th scope="col">{escape(summary.label)}</th>' for summary in summaries)
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(key)}</code></th>{"".join(map(_setting, values))}</tr>'
        for key, values in found.items()
    )
    return _section(
        "settings",
        "Settings that differ",
        f"From each run's config.toml. {ABSENT}: the run has no such setting.",
        f'<table><thead><tr><th scope="col">setting</th>{heads}</tr></thead><tbody>{rows}</tbody></table>',
    )


def commands(summaries: Sequence[Summary]) -> str:
    """How to make each run again, and the fingerprint by which to know that it is the same."""
    blocks = ""
    for summary in summaries:
        info = summary.record.info
        command = str(info.get("command") or "(the command was not recorded)")
        message = str(info.get("message", ""))
        fingerprint = str(info.get("x_sha256", ""))
        blocks += f'<div class="card run"><h3>{_run_name(summary)}</h3>'
        blocks += f'<p class="bad">{escape(message)}</p>' if message else ""
        blocks += f"<pre><code>{escape(command)}</code></pre>"
        blocks += (
            f'<p class="quiet">final parameters, sha256: {escape(fingerprint)}</p>' if fingerprint else ""
        )
        blocks += "</div>"
    return (
        '<section><h2>Commands</h2><p class="quiet">Each makes its run again.</p>'
        f'<div class="runs">{blocks}</div></section>'
    )


def target_note(records: Sequence[RunRecord]) -> str:
    """What the dotted line across the metric's charts is."""
    target = target_value(records)
    return "" if target is None else f" Dotted: the target, {unit_of(records[0].metric).target(target)}."


def line_name(summary: Summary) -> str:
    """A run's name in legends, which say when its line ends early."""
    return f"{summary.label} ({summary.state})" if summary.state else summary.label


def _run_name(summary: Summary) -> str:
    failed = " failed" if summary.failed else ""
    state = f'<span class="state{failed}">{escape(summary.note)}</span>' if summary.note else ""
    return f'<span class="name">{swatch(summary.position)}<span>{escape(summary.label)}{state}</span></span>'


def _setting(value: object) -> str:
    if value is None:
        return f'<td class="absent">{ABSENT}</td>'
    if isinstance(value, float):  # 10^-1.5 reads as 0.03162; the exact value is in the title and the file
        return f'<td title="{value!r}">{value:.4g}</td>'
    return f"<td>{escape(str(value).lower() if isinstance(value, bool) else str(value))}</td>"


def _section(name: str, title: str, note: str, table: str) -> str:
    """A titled table in a box that scrolls, by keyboard too, so that the page need not scroll sideways."""
    return (
        f'<section><h2 id="{name}">{title}</h2>'
        f'<p class="quiet">{escape(note).replace(" %", "&nbsp;%")}</p>'
        f'<div class="scroll card" tabindex="0" role="region" aria-labelledby="{name}">{table}</div>'
        "</section>"
    )
