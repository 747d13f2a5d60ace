"""Estimated and actual times of the runs."""

from __future__ import annotations

from claims.markdown import table
from claims.results import Results


def times_table(results: Results) -> str:
    """Return the table of CPU times."""
    rows = []
    for name, result in results.items():
        if result.cpu_seconds and result.complete:
            rounds = sum(record.info["rounds"] for record in result.done)
            per_round = result.cpu_seconds / rounds if rounds else 0.0
            rows.append([f"`{name}`", str(len(result.done)), f"{rounds:,}", f"{result.cpu_seconds / 60:.1f}"])
            rows[-1].append(f"{per_round * 1000:,.0f}")
    header = ["entry", "runs", "rounds", "CPU minutes", "ms per round"]
    return table(header, rows)
