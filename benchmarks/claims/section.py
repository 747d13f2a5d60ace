"""A section of the page: tables, figures, and a verdict for each dataset."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from claims import markdown
from claims.entry import Entry
from claims.figures import Axis, Curves, draw_curves
from claims.results import Results, value_at
from claims.rules import Verdict
from fedopt.reports import Interval, confidence_interval, paired_difference
from fedopt.runs.records import RunRecord

DIVERGED_LOSS = 1e6

Runs = Mapping[str, Sequence[RunRecord]]  # by method
Figures = Mapping[str, Callable[[], Figure]]  # functions that draw, by file name


class Section(NamedTuple):
    """The numbers of a section. Its prose is in `page.md.j2`; `tables` are inserted there by name."""

    name: str
    title: str
    tables: Mapping[str, str]
    verdicts: Mapping[str, Verdict]  # by the name of the data
    entries: str  # a regular expression for the names of the entries whose commands are listed
    figures: Figures = {}


def seed_values(records: Sequence[RunRecord], name: str = "value") -> dict[int, float]:
    """Return a recorded result of finished runs by seed: `value` is the mean over the last 100 rounds."""
    return {
        r.info["seed"]: r.info[name] for r in records if r.status == "done" and r.info.get(name) is not None
    }


def mean_interval(records: Sequence[RunRecord], name: str = "value") -> Interval | None:
    values = list(seed_values(records, name).values())
    return confidence_interval(values) if values else None


def difference(a: Sequence[RunRecord], b: Sequence[RunRecord], name: str = "value") -> Interval | None:
    """Return the difference of a result, paired by seed; None without a common seed."""
    return paired_difference(seed_values(a, name), seed_values(b, name))


def values_at(records: Sequence[RunRecord], round: int) -> dict[int, float]:
    """Return the results at an evaluated round by seed."""
    found = {record.info["seed"]: value_at(record, round) for record in records}
    return {seed: value for seed, value in found.items() if value is not None}


def text_at(records: Sequence[RunRecord], round: int) -> str:
    """Return the mean accuracy or recall over seeds at an evaluated round, in percent."""
    values = list(values_at(records, round).values())
    return markdown.value_text(confidence_interval(values) if values else None, "accuracy")


def finished(results: Results, pattern: str) -> dict[str, list[RunRecord]]:
    """Return the finished runs of the entries that match `pattern`, by the name of the algorithm.

    Runs that diverged are left out.
    """
    found: dict[str, list[RunRecord]] = {}
    for name, result in results.items():
        if re.fullmatch(pattern, name):
            for record in result.done:
                if divergence(record) is None:
                    found.setdefault(record.label, []).append(record)
    return found


def divergence(record: RunRecord) -> int | None:
    """Return a round by which a run has diverged, or None.

    A run diverges if x or all updates of a round are not finite, or if its training loss ends above a
    million. Some runs end with a finite loss of 1e27.
    """
    if record.status == "diverged":
        return int(record.info.get("rounds_done", record.rounds))
    large = [line["round"] for line in record.train if line["loss"] is None or line["loss"] > DIVERGED_LOSS]
    return large[0] if large and large[-1] == record.train[-1]["round"] else None


def curve_figure(
    name: str,
    title: str,
    panels: Mapping[str, Curves],
    styles: Mapping[str, Any] | None = None,
    axis_of: Mapping[str, Axis] | None = None,
) -> Figures:
    """Return the figure of the panels that have curves; none if no panel has."""
    known = {panel: curves for panel, curves in panels.items() if curves}
    return {name: lambda: draw_curves(title, known, styles, axis_of)} if known else {}


def commands(entries: Sequence[Entry], results: Results, pattern: str) -> str:
    """Return the commands of a section as a folded block. Those without a complete result say so.

    The block is HTML: Markdown inside folded blocks is not rendered everywhere.
    """
    lines, done = [], 0
    for entry in entries:
        if re.search(pattern, entry.name):
            result = results.get(entry.name)
            state = "" if result and result.complete else "   # partly run" if result else "   # not run yet"
            done += not state
            lines.append(html.escape(shlex.join(entry.command()) + state, quote=False))
    block = "<pre><code>" + "\n".join(lines) + "</code></pre>"
    summary = f"Commands: {done} of {len(lines)} complete"
    return f"<details><summary>{summary}</summary>\n{block}\n</details>" if lines else ""
