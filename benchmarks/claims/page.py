"""Write docs/claims.md and its figures from the stored results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from claims import dense, slow_starters, sparse, tuning
from claims.agreement import agreement
from claims.decay import decay
from claims.entry import Entry
from claims.markdown import provenance, table
from claims.padding import padding
from claims.plan import plan_entries
from claims.repeatability import repeatability
from claims.results import Results
from claims.rules import CONTRADICTED, STATUSES
from claims.scaffold import scaffold
from claims.section import Section, commands
from claims.tags_plan import TUNING_ROUNDS
from claims.times import small_scale_cpu, small_scale_table, small_scale_total, times_table
from fedopt.files import write_atomically
from fedopt.formatting import ABSENT
from fedopt.reproduction.plotting import render_svg

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "claims.md"
TEMPLATE = Path(__file__).parent / "page.md.j2"
FIGURES = ROOT / "docs" / "figures" / "claims"


def sections(results: Results) -> list[Section]:
    """Return the sections of the page in order."""
    return [
        sparse.clear_margin(results),
        dense.at_least_as_good(results),
        tuning.ease_of_tuning(results),
        tuning.robustness_to_tau(results),
        tuning.inverse_relation(results),
        decay(results),
        scaffold(results),
        slow_starters.slow_starters(results),
        padding(results),
        repeatability(results),
        agreement(results),
    ]


def build_page(results: Results, content: Sequence[Section]) -> str:
    """Return the text of the page with these sections."""
    entries = plan_entries(results)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    text = environment.from_string(TEMPLATE.read_text()).render(
        {
            section.name: _described(number, section, entries, results)
            for number, section in enumerate(content, 1)
        },
        overview=_overview(content),
        summary=_summary(content),
        times=times_table(results),
        small_scale=small_scale_table(),
        small_scale_cpu=small_scale_cpu(),
        small_scale_hours=small_scale_total(),
        tuning_rounds=TUNING_ROUNDS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _described(number: int, section: Section, entries: Sequence[Entry], results: Results) -> dict[str, Any]:
    """Return the fields of a section, its number, commands and the origin of its results."""
    used = [result for name, result in results.items() if re.search(section.entries, name)]
    return {
        **section._asdict(),
        "number": number,
        "commands": commands(entries, results, section.entries),
        "provenance": provenance(used) if used else "",
    }


def _overview(content: Sequence[Section]) -> str:
    """Return how many verdicts of each kind a section has."""
    rows = []
    for number, section in enumerate(content, 1):
        counts = Counter(verdict.status for verdict in section.verdicts.values())
        link = f"[{number}. {section.title}](#{_anchor(number, section)})"
        # The column "contradicted" is always shown, also without entries.
        cells = [str(counts[s]) if counts[s] or s == CONTRADICTED else ABSENT for s in STATUSES]
        rows.append([link, *cells])
    return table(["", *STATUSES], rows)


def _summary(content: Sequence[Section]) -> str:
    rows = []
    for number, section in enumerate(content, 1):
        for data, verdict in section.verdicts.items():
            rows.append([str(number), data, f"**{verdict.status}**", verdict.reason])
    return table(["section", "data", "verdict", "deciding result"], rows)


def _anchor(number: int, section: Section) -> str:
    """Return the anchor that GitHub and MkDocs give to the heading."""
    kept = "".join(c for c in f"{number} {section.title}".lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def write_page(results: Results) -> Path:
    """Write the page and its figures. Figures that the page no longer shows are removed."""
    content = sections(results)
    text = build_page(results, content)
    drawn = {
        f"{name}.svg": render_svg(draw()) for section in content for name, draw in section.figures.items()
    }
    FIGURES.mkdir(parents=True, exist_ok=True)
    for file in FIGURES.glob("*.svg"):
        if file.name not in drawn:
            file.unlink()
    for name, svg in drawn.items():
        write_atomically(FIGURES / name, svg)
    write_atomically(PAGE, text)
    return PAGE
