"""The same commands on another CPU type.

Floating-point results depend on the instructions of the CPU, so checksums are equal on one CPU type only.
`python -m claims cpu` runs entries that were computed on another type again on this machine. Their results
are stored in `cpu_types/TYPE`, and the page compares the values.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from claims import markdown, rules
from claims.plan import plan_entries
from claims.results import EntryResult, Results, load_results, read_records, store_result
from claims.runner import Log, current_commit, execute, this_cpu_type
from claims.section import difference, mean_interval, seed_values
from fedopt.analysis.seeds import Interval
from fedopt.reproduction.published import METHOD_NAMES, OPTIMIZERS

DIRECTORY = Path(__file__).parent / "cpu_types"
# Long runs with three seeds whose values are compared: tags (section 1) and digits (section 6).
TAGS = {
    "fedadagrad": "client2_server0.5_tau-5",
    "fedadam": "client2_server-0.5_tau-5",
    "fedyogi": "client2_server-0.5_tau-5",
    "fedavgm": "client2_server-1.5",
    "fedavg": "client2_server0",
}
COMPARED = {
    "tags of real questions": {m: f"so_lr/full/{m}_{TAGS[m]}" for m in OPTIMIZERS},
    "digits, small network": {m: f"writers/seeds/constant/{m}" for m in OPTIMIZERS},
}


def is_repeated(name: str) -> bool:
    """Return whether `python -m claims cpu` runs an entry."""
    return name.startswith("repeat/") or any(name in names.values() for names in COMPARED.values())


def load_cpu_types() -> dict[str, Results]:
    """Return the results of `python -m claims cpu` by CPU type."""
    return {folder.name: load_results(folder) for folder in sorted(DIRECTORY.glob("*")) if folder.is_dir()}


def run_on_this_cpu(work: Path, pattern: str, log: Log) -> int:
    """Run entries again that another CPU type has computed. Return the number of failures."""
    here = this_cpu_type()
    results, failures = load_results(), 0
    known = load_cpu_types().get(here, {})
    for entry in plan_entries(results):
        stored = results.get(entry.name)
        if not stored or not is_repeated(entry.name) or not re.search(pattern, entry.name):
            continue
        if stored.cpu_type == here or entry.name in known:
            continue
        out = f"cpu/{here}/{entry.name}"
        log(f"{entry.name}: {shlex.join(entry.command(out))}")
        attempt = execute(entry, work, out)
        failures += attempt.code != 0
        log(f"{entry.name}: {attempt.outcome}, {attempt.cpu_seconds:.0f} s of CPU time")
        if attempt.code == 0:
            records, command = read_records(work / out), shlex.join(entry.command(out))
            result = EntryResult(entry.name, command, [current_commit()], True, attempt.cpu_seconds, records)
            store_result(result, DIRECTORY / here)
    return failures


def comparison(results: Results, others: dict[str, Results]) -> tuple[str, dict[str, rules.Verdict]]:
    """Return the table of values on two CPU types, and a verdict for each other type."""
    rows, verdicts = [], {}
    for cpu, repeated in others.items():
        gaps: list[Interval | None] = []
        for data, names in COMPARED.items():
            metric = "recall_at_5" if data.startswith("tags") else "accuracy"
            for method, name in names.items():
                first, second = results.get(name), repeated.get(name)
                if first is None or second is None:
                    continue
                gap = difference(second.done, first.done)
                gaps.append(gap)
                values = [mean_interval(result.done) for result in (first, second)]
                rows.append(
                    [data, METHOD_NAMES[method], f"{first.cpu_type} and {cpu}"]
                    + [markdown.value_text(value, metric) for value in values]
                    + [markdown.difference_text(gap, metric), f"{_largest(first, second) * 100:.1f}"]
                )
        expected = sum(len(names) for names in COMPARED.values())
        verdicts[f"values on {cpu}"] = rules.judge_agreement(gaps, expected, f"runs on {cpu}")
    header = ["data", "method", "CPU types", "first", "second", "difference", "largest difference of a seed"]
    return markdown.table(header, rows), verdicts


def _largest(first: EntryResult, second: EntryResult) -> float:
    a, b = seed_values(first.done), seed_values(second.done)
    return max((abs(a[seed] - b[seed]) for seed in a if seed in b), default=float("nan"))
