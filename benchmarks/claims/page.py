"""Write docs/claims.md and its figures from the stored results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from claims import dense, slow_starters, small_scale, sparse
from claims.agreement import agreement
from claims.best_rates import inverse_relation
from claims.decay import decay
from claims.ease import ease_of_tuning
from claims.entry import Entry
from claims.markdown import provenance, table
from claims.padding import padding
from claims.plan import plan_entries
from claims.repeatability import repeatability
from claims.results import EntryResult, Results
from claims.rules import OPPOSITE, STATUSES
from claims.scaffold import scaffold
from claims.section import Section, commands
from claims.tags_plan import TUNING_ROUNDS
from claims.tau import robustness_to_tau
from claims.times import load_estimates, times_table
from fedopt.files import write_atomically
from fedopt_paper.plotting import render_svg

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "claims.md"
TEMPLATE = Path(__file__).parent / "page.md.j2"
FIGURES = ROOT / "docs" / "figures" / "claims"


def sections(results: Results) -> list[Section]:
    """Return the sections of the page in order."""
    return [
        sparse.clear_margin(results),
        dense.at_least_as_good(results),
        ease_of_tuning(results),
        robustness_to_tau(results),
        inverse_relation(results),
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
            section.name: _described(number, section, content, entries, results)
            for number, section in enumerate(content, 1)
        },
        summary=_summary(content),
        opposite=_opposite(content),
        times=times_table(results),
        small_scale=_small_scale(entries, results),
        tuning_rounds=TUNING_ROUNDS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _small_scale(entries: Sequence[Entry], results: Results) -> dict[str, str]:
    """Return tables, numbers, commands and origin of the small scale of the reproduction."""
    estimates = load_estimates()
    cpu, hours = estimates["cpu"], estimates["reproduce_small"]
    result = results.get(small_scale.ENTRY) or EntryResult(small_scale.ENTRY, "", [], False, None, [])
    return {
        "commands": commands(entries, results, f"^{small_scale.ENTRY}$"),
        "origin": provenance([result]) if result.records else "",
        "cpu": cpu,
        "times": small_scale.times_by_task(result, hours, cpu),
        "progress": small_scale.progress(result, hours, cpu),
        "hours": f"{sum(estimate for _, estimate in hours.values()) / 2:.1f}",
        "results": small_scale.results_by_task(result) if result.records else "",
    }


def _described(
    number: int, section: Section, content: Sequence[Section], entries: Sequence[Entry], results: Results
) -> dict[str, Any]:
    """Return the fields of a section, its number, commands and the origin of its results."""
    used = [result for name, result in results.items() if re.search(section.entries, name)]
    first = next(n for n, other in enumerate(content, 1) if other.entries == section.entries)
    same = f"The runs and commands are those of section {first}."
    return {
        **section._asdict(),
        "number": number,
        "commands": commands(entries, results, section.entries) if first == number else same,
        "provenance": provenance(used) if used and first == number else "",
    }


def _summary(content: Sequence[Section]) -> str:
    """Return one row for each claim and verdict, with the data for which it is given."""
    rows = []
    for number, section in enumerate(content, 1):
        link = f"[{number}. {section.title}](#{_anchor(number, section)})"
        for status in STATUSES:
            data = [name for name, verdict in section.verdicts.items() if verdict.status == status]
            if data:
                rows.append([link, f"**{status}**", "; ".join(data)])
                link = ""
    return table(["claim", "verdict", "data"], rows)


def _opposite(content: Sequence[Section]) -> list[str]:
    """Return the data for which one seed shows the opposite of the claim."""
    return [
        f"{data} (section {number})"
        for number, section in enumerate(content, 1)
        for data, verdict in section.verdicts.items()
        if verdict.reason.endswith(OPPOSITE)
    ]


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
