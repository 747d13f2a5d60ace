"""The HTML page of a reproduction: one file without external resources, with a section per artifact.

A section is rendered with its artifact. The page combines all sections that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedopt.reports import render_template
from fedopt.reproduction.artifacts.cells import ArtifactContent
from fedopt.reproduction.artifacts.registry import ARTIFACTS, Artifact
from fedopt.reproduction.comparison import relative_link
from fedopt.reproduction.data_sources import label_notes
from fedopt.reproduction.plotting import RenderedFigure
from fedopt.reproduction.scales import ReproductionScale

SECTION = "section.html"
FILES = ("figure.svg", "figure.pdf", "figure.png", "numbers.csv", "table.md")
_OPEN_TABLES = 2  # further tables are collapsed
_MATHEMATICS = {
    "as_run": "The server mathematics is that of the authors’ code",
    "as_printed": "The server mathematics is as printed",
}


def render_section(
    artifact: Artifact,
    content: ArtifactContent,
    figure: RenderedFigure,
    scale: ReproductionScale,
    labels: Sequence[str],
    command: str,
    out: Path,
) -> str:
    """Render the figure, the tables, the notes and the command of an artifact."""
    return render_template(
        "fedopt.reproduction",
        "section.html.j2",
        artifact=artifact,
        figure=figure,
        tables=[table for table in content.tables if table.on_page and table.cells],
        open_tables=_OPEN_TABLES,
        link=lambda run: relative_link(run, out),
        labels=[label for label in dict.fromkeys(labels) if label],
        notes=[*content.notes, *label_notes(labels)],
        scale=scale,
        command=command,
        files=FILES,
    )


def render_page(out: Path, scale: ReproductionScale, variant: str) -> str:
    """Render the page with all sections in `out`."""
    artifacts = [a for a in ARTIFACTS.values() if (out / a.name / SECTION).is_file()]
    return render_template(
        "fedopt.reproduction",
        "page.html.j2",
        scale=scale,
        variant=variant,
        mathematics=_MATHEMATICS[variant],
        artifacts=artifacts,
        sections=[(out / a.name / SECTION).read_text(encoding="utf-8") for a in artifacts],
    )
