"""The tables of the report page, as HTML: results that sort, and the settings that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from fedopt.analysis.seeds import seed_of
from fedopt.analysis.summary import Summary, differing_settings
from fedopt.display.table import BEST, NOISE, UNKNOWN, WORSE, against_best, columns, noise_sentence, reading
from fedopt.formatting import ABSENT, setting_text
from fedopt.report.line_styles import MANY, Drawn
from fedopt.report.sections import run_name, tag, units_kept

MOST_SETTINGS = 4  # differing settings that the results of many configurations have as columns
TALL = 16  # rows; more scroll inside their box
VERDICTS = {BEST: 0, NOISE: 1, WORSE: 2, UNKNOWN: 3}  # in sorting order


def results(summaries: Sequence[Summary], shown: Drawn) -> str:
    """The sortable table of the numbers, best first."""
    records = [record for summary in summaries for record in summary.group.records]
    several = any(len(summary.group.records) > 1 for summary in summaries)
    settings = setting_columns(summaries)
    numbers = columns(summaries)
    heads = [_head("run", "ascending")]
    heads += [_head(key, "ascending") for key in settings]
    for at, column in enumerate(numbers):
        first = "descending" if column.better == "higher" else "ascending"
        heads.append(_head(column.title, first, now=at == 0))
        if at == 0 and several:
            heads.append(_head("against best", "ascending"))
    heads += [_head("seeds", "descending")] if several else []
    verdicts = against_best(summaries)
    rows = []
    for at, summary in enumerate(summaries):
        label = summary.record.label if settings else summary.label
        cells = [
            f'<th scope="row" data-value="{escape(summary.label)}">{run_name(summary, shown, label)}</th>'
        ]
        cells += [_setting(row[at]) for row in settings.values()]
        for place, column in enumerate(numbers):
            cell = column.cells[at]
            kind = "best" if cell.best else "absent" if cell.number is None else ""
            value = "" if cell.number is None else repr(cell.number)
            cells.append(f'<td class="{kind}" data-value="{value}">{units_kept(cell.text)}</td>')
            if place == 0 and several:
                verdict = verdicts[at]
                order = VERDICTS.get(verdict, "")
                cells.append(f'<td class="verdict" data-value="{order}">{verdict or ABSENT}</td>')
        cells += [f'<td data-value="{len(summary.counted)}">{len(summary.counted)}</td>'] if several else []
        rows.append(f"<tr>{''.join(cells)}</tr>")
    row = "Each row is one configuration." if several else "Each row is one run with one seed."
    return section(
        "results",
        f"Results{tag(records)}",
        f"{reading(summaries)} {noise_sentence(summaries)} Bold: the best of a column. {row}",
        f'<table class="sortable"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>",
        tall=len(rows) > TALL,
    )


def setting_columns(summaries: Sequence[Summary]) -> dict[str, list[object]]:
    """The settings that stand in the results as columns of their own: those of a grid, which is long."""
    found = differing_settings([summary.record for summary in summaries])
    found.pop("algorithm", None)
    if any(key.endswith(".optimizer") or row.count(None) for key, row in found.items()):
        # what only some algorithms have is told by the algorithm; what a grid varies is not
        found = {key: row for key, row in found.items() if _varies_within(key, summaries)}
    return found if len(summaries) > MANY and 1 <= len(found) <= MOST_SETTINGS else {}


def _varies_within(key: str, summaries: Sequence[Summary]) -> bool:
    """Whether a setting differs between configurations of one algorithm."""
    names = {summary.record.label for summary in summaries}
    return any(
        key in differing_settings([s.record for s in summaries if s.record.label == name]) for name in names
    )


def _head(title: str, first: str, now: bool = False) -> str:
    order = first if now else "none"
    title = re.sub(r" (to|the) ", "\u00a0\\1 ", title)  # a head breaks into two lines, not three
    return (
        f'<th scope="col" aria-sort="{order}" data-first="{first}">'
        f'<button type="button">{units_kept(title)}</button></th>'
    )


def differences(summaries: Sequence[Summary]) -> str:
    """The settings in which the configurations differ."""
    found = differing_settings([summary.record for summary in summaries])
    found.pop("algorithm", None)  # the names say it
    seeds = [", ".join(str(seed_of(record)) for record in summary.group.records) for summary in summaries]
    if len(set(seeds)) > 1:
        found["seed"] = list(seeds)
    rounds = [summary.record.rounds for summary in summaries]
    if len(set(rounds)) > 1:
        found["rounds"] = list(rounds)
    title = "Settings that differ"
    if not found:
        return f'<section><h2>{title}</h2><p class="quiet">None, beside the algorithm.</p></section>'
    heads = [f'<th scope="col">{escape(summary.label)}</th>' for summary in summaries]
    keys = [f"<code>{escape(key)}</code>" for key in found]
    note = f"From each run's config.toml. {ABSENT}: the run has no such setting."
    if len(summaries) <= MANY:
        body = "".join(
            f'<tr><th scope="row">{key}</th>{"".join(map(_setting, row))}</tr>'
            for key, row in zip(keys, found.values(), strict=True)
        )
        top = '<th scope="col">setting</th>' + "".join(heads)
    else:  # more configurations than fit side by side: one row each
        body = "".join(
            f'<tr><th scope="row">{escape(summary.label)}</th>'
            f"{''.join(_setting(row[at]) for row in found.values())}</tr>"
            for at, summary in enumerate(summaries)
        )
        top = '<th scope="col">run</th>' + "".join(f'<th scope="col">{key}</th>' for key in keys)
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    if len(summaries) <= MANY:
        return section("settings", title, note, table)
    box = f'<div class="scroll card tall" tabindex="0" role="region" aria-label="{title}">{table}</div>'
    return (
        f'<section><h2>{title}</h2><p class="quiet">{escape(note)}</p>'
        f"<details><summary>{len(found)} settings of {len(summaries)} configurations</summary>{box}</details>"
        "</section>"
    )


def _setting(value: object) -> str:
    if value is None:
        return f'<td class="absent" data-value="">{ABSENT}</td>'
    # 10^-1.5 reads as 0.03162; the exact value is in the title and the file
    exact = f' title="{value!r}"' if isinstance(value, float) else ""
    return f'<td data-value="{escape(str(value))}"{exact}>{escape(setting_text(value))}</td>'


def section(name: str, title: str, note: str, table: str, *, tall: bool = False) -> str:
    """A titled table in a box that scrolls, by keyboard too, so that the page need not scroll sideways."""
    return (
        f'<section><h2 id="{name}">{title}</h2>'
        f'<p class="quiet">{units_kept(note)}</p>'
        f'<div class="scroll card{" tall" if tall else ""}" tabindex="0" role="region" '
        f'aria-labelledby="{name}">{table}</div></section>'
    )
