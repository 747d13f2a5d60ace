"""The page of a reproduction: one file that needs nothing from anywhere, with a section for each artifact.

A section is written when its artifact is drawn; the page puts those together that are there. Every string
that is not ours passes through `escape`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from fedopt.reproduction.artifact_cells import Drawn
from fedopt.reproduction.artifacts import ARTIFACTS, Artifact
from fedopt.reproduction.page_style import STYLE
from fedopt.reproduction.scales import Scale
from fedopt.reproduction.sources import explain
from fedopt.reproduction.tables import Entry, Table, relative_link

SECTION = "section.html"
FILES = ("figure.svg", "figure.png", "numbers.csv", "table.md")
_OPEN_TABLES = 2  # more are folded, so that the page stays short


def section(
    artifact: Artifact,
    drawn: Drawn,
    svg: str,
    scale: Scale,
    words: Sequence[str],
    command: str,
    out: Path,
) -> str:
    """One artifact: figure, tables, what was reduced, the command, the files."""
    shown = [table for table in drawn.tables if table.on_page and table.entries]
    opened, folded = shown[:_OPEN_TABLES], shown[_OPEN_TABLES:]
    tables = "".join(_table(table, out) for table in opened)
    if folded:
        inner = "".join(_table(table, out) for table in folded)
        tables += f"<details><summary>{len(folded)} more tables</summary>{inner}</details>"
    marks = [word for word in dict.fromkeys(words) if word]
    figure = f'<div class="figure" tabindex="0">{svg}</div>'
    badges = "".join(f'<span class="badge">{escape(word)} data</span>' for word in marks)
    notes = [*drawn.notes, *explain(words)]
    reduced = "".join(f"<li>{escape(said)}</li>" for said in scale.said)
    files = " · ".join(f'<a href="{artifact.name}/{file}">{file}</a>' for file in FILES)
    return (
        f'<section id="{artifact.name}"><h2>{escape(artifact.title)} {badges}</h2>'
        f'<p class="quiet">{escape(artifact.where)}</p>'
        f"{figure}{tables}"
        f"{''.join(f'<p>{escape(note)}</p>' for note in notes)}"
        f"<details><summary>Scale {escape(scale.name)}: what was reduced</summary><ul>{reduced}</ul>"
        "</details>"
        f'<p class="again">Again: <code>{escape(command)}</code></p><p class="quiet">{files}</p></section>'
    )


def figure_label(artifact: Artifact, words: Sequence[str]) -> str:
    """What a reader hears who does not see the figure."""
    marks = [word for word in dict.fromkeys(words) if word]
    data = f", {' and '.join(marks)} data" if marks else ""
    return f"{artifact.title}{data}; the numbers are in the tables below"


def _table(table: Table, out: Path) -> str:
    """Rows of paper, ours and difference, or of ours alone where the paper prints none."""
    columns = table.columns
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    lead = 2 if table.compare else 1
    corner = f'<th scope="col" colspan="{lead}">{escape(table.corner)}</th>'
    body = ""
    for row in table.rows:
        cells = [table.cell(row, column) for column in columns]
        word = table.word_of(row)
        if not table.compare:
            body += f'<tr><th scope="row">{escape(row + word)}</th>{_ours(cells, out)}</tr>'
            continue
        paper = "".join(_td(e.paper_shown, e.paper_bold) if e else "<td></td>" for e in cells)
        apart = "".join(_td(e.text(e.difference, sign=True), False) if e else "<td></td>" for e in cells)
        body += (
            f'<tbody><tr><th scope="rowgroup" rowspan="3">{escape(row)}</th>'
            f'<th scope="row">paper</th>{paper}</tr>'
            f'<tr><th scope="row">ours{escape(word)}</th>{_ours(cells, out)}</tr>'
            f'<tr class="apart"><th scope="row">difference</th>{apart}</tr></tbody>'
        )
    body = body if table.compare else f"<tbody>{body}</tbody>"
    note = f'<p class="quiet">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll" tabindex="0"><table><caption><span>{escape(table.title)}</span></caption>'
        f"<thead><tr>{corner}{head}</tr></thead>{body}</table></div>{note}"
    )


def _td(text: str, bold: bool) -> str:
    inner = escape(text)
    return f"<td>{f'<strong>{inner}</strong>' if bold and text else inner}</td>"


def _ours(cells: Sequence[Entry | None], out: Path) -> str:
    html = ""
    for entry in cells:
        if entry is None or not entry.shown:
            html += "<td></td>"
            continue
        inner = escape(entry.shown)
        inner = f"<strong>{inner}</strong>" if entry.ours_bold else inner
        if entry.run is not None:
            inner = f'<a href="{quote(relative_link(entry.run, out))}/">{inner}</a>'
        detail = f'<span class="detail">{escape(entry.detail)}</span>' if entry.detail else ""
        kind = ' class="state"' if entry.ours is None else ""
        html += f"<td{kind}>{inner}{detail}</td>"
    return html


_MATHEMATICS = {
    "as_run": "The authors’ server mathematics",
    "as_printed": "The server mathematics as printed",
}


def index(out: Path, scale: Scale, variant: str) -> str:
    """The page over all artifacts that were drawn in `out`."""
    sections = {}
    for name, artifact in ARTIFACTS.items():
        file = out / name / SECTION
        if file.is_file():
            sections[artifact] = file.read_text(encoding="utf-8")
    links = "".join(f'<li><a href="#{a.name}">{escape(a.title)}</a></li>' for a in sections)
    reduced = "".join(f"<li>{escape(said)}</li>" for said in scale.said)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>Adaptive Federated Optimization, made again</title><style>{STYLE}</style></head>"
        "<body><header>"
        "<h1>Adaptive Federated Optimization, made again</h1>"
        f'<p class="lead">Scale <strong>{escape(scale.name)}</strong>: {escape(scale.what)}.</p>'
        f"<ul>{reduced}</ul>"
        "<p>Every number of ours comes from a run directory, to which it links, or is counted in the data. A "
        "blank cell has no run. The "
        f"paper’s numbers are those it prints. {_MATHEMATICS[variant]} "
        f"(<code>variant={escape(variant)}</code>); sampling, weights and betas as the package’s defaults, "
        "see docs/deviations.md.</p>"
        f'<nav aria-label="Artifacts"><ul>{links}</ul></nav></header>'
        f"<main>{''.join(sections.values())}</main></body></html>\n"
    )
