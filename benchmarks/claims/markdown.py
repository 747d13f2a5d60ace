"""Markdown elements of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from claims.results import EntryResult, cpu_type
from fedopt.formatting import ABSENT, metric_unit
from fedopt.reports import Interval


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table without the columns that have no value. Without values it is empty."""
    columns = [column for column in zip(header, *rows, strict=True) if set(column[1:]) - {ABSENT}]
    if len(columns) < 2:
        return ""
    header, *rows = zip(*columns, strict=True)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float) -> str:
    """Return a number with a minus sign."""
    return f"{value:g}".replace("-", "−")


def value_text(interval: Interval | None, metric: str) -> str:
    """Return a mean with its 95 % interval, without its unit, or a dash."""
    if interval is None:
        return ABSENT
    return metric_unit(metric)._replace(suffix="").format(interval.mean, interval.half_width)


def difference_text(interval: Interval | None, metric: str) -> str:
    """Return a difference with its sign and its 95 % interval, or a dash."""
    if interval is None:
        return ABSENT
    text = metric_unit(metric).format_difference(interval.mean, interval.half_width)
    is_zero = not float(text.split()[0].replace("−", "-").replace(",", ""))
    return text if text.startswith("−") or is_zero else f"+{text}"


def provenance(results: Iterable[EntryResult]) -> str:
    """Return commits, dates, torch version and CPU type of results, for the line below a table."""
    found = list(results)
    commits = sorted({commit for result in found for commit in result.commits})
    dates = sorted({date for result in found for date in result.dates if date})
    machines = {
        f"torch {record.info['machine']['torch']}, {cpu_type(record.info['machine'])}"
        for result in found
        for record in result.records
        if record.info.get("machine")
    }
    return f"Commit {', '.join(commits)}; {', '.join(dates)}; {'; '.join(sorted(machines))}."
