"""Compare results of the package with those of a second implementation on the same files.

`python -m claims independent --files DIR` runs `independent.py` with the settings of stored results. The page
compares the means over seeds. The two implementations draw different clients and initial weights.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import ttest_ind

from claims import markdown, rules
from claims.results import Results
from claims.runner import current_commit
from claims.scaffold import trained_best
from claims.section import Section, seed_values
from claims.sparse import best_full_runs
from claims.writers_plan import SCHEDULES, SEEDS
from fedopt.files import write_atomically
from fedopt.reports import CONFIDENCE, Interval, confidence_interval
from fedopt.runs.records import RunRecord
from fedopt_paper.published import METHOD_NAMES, OPTIMIZERS

PROGRAM = Path(__file__).parent / "independent.py"
FILE = Path(__file__).parent / "independent.json"
METRICS = {"tags": "recall_at_5", "digits": "accuracy"}
DATA = {"tags": "tags of real questions", "digits": "digits, small network"}
# Number of comparisons. Digits have both schedules of all methods, and SCAFFOLD.
PLANNED = {"tags": len(OPTIMIZERS), "digits": len(SCHEDULES) * len(OPTIMIZERS) + 1}


class Comparison(NamedTuple):
    """Runs of the package that the second implementation repeats."""

    problem: str  # of the second implementation
    label: str
    records: Sequence[RunRecord]  # one for each seed

    @property
    def settings(self) -> dict[str, Any]:
        config = self.records[0].config
        return {
            "problem": self.problem,
            "algorithm": config["algorithm"],
            "client_lr": config["client.lr"],
            "server_lr": config["server.lr"],
            "tau": config.get("server.tau"),
            "rounds": self.records[0].rounds,
            "decay_rounds": config.get("client.decay_rounds"),
        }


def comparisons(results: Results) -> list[Comparison]:
    """Return all comparisons whose runs of the package are known."""
    found = [Comparison("tags", METHOD_NAMES[m], best_full_runs(results, m)) for m in OPTIMIZERS]
    for name in SCHEDULES:
        for method in OPTIMIZERS:
            entry = results.get(f"writers/seeds/{name}/{method}")
            runs = entry.done if entry and entry.complete else []
            found.append(Comparison("digits", f"{METHOD_NAMES[method]}, {name}", runs))
    scaffold = trained_best(results, "writers/scaffold").get("scaffold", [])
    found.append(Comparison("digits", "SCAFFOLD", scaffold))
    return [comparison for comparison in found if comparison.records]


def command(settings: dict[str, Any], files: str) -> list[str]:
    """Return the command of the second implementation."""
    options = {f"--{name.replace('_', '-')}": value for name, value in settings.items() if name != "problem"}
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    return ["python", f"benchmarks/claims/{PROGRAM.name}", settings["problem"], "--files", files, *given]


def run_missing_comparisons(results: Results, files: Path, log: Callable[[str], None]) -> int:
    """Run the second implementation where its result is missing. Return the number of failures."""
    planned, failures = comparisons(results), 0
    if all(_independent_result(comparison.settings) for comparison in planned):
        log(f"nothing to run: all {len(planned)} results are stored")
    for comparison in planned:
        if _independent_result(comparison.settings) is None:
            words = command(comparison.settings, str(files))[2:]
            log(f"{comparison.problem}, {comparison.label}: {shlex.join(words)}")
            process = subprocess.run(
                [sys.executable, str(PROGRAM), *words], stdout=subprocess.PIPE, text=True
            )
            if process.returncode == 0:
                _store(comparison.settings, [json.loads(line) for line in process.stdout.splitlines()])
            failures += process.returncode != 0
    return failures


def _store(settings: dict[str, Any], seeds: list[dict[str, Any]]) -> None:
    means = {seed["seed"]: seed["mean"] for seed in seeds}
    origin = {"commit": current_commit(), "date": time.strftime("%Y-%m-%d")}
    lines = [json.dumps(entry) for entry in [*_stored(), {"settings": settings, "means": means, **origin}]]
    write_atomically(FILE, "[\n " + ",\n ".join(lines) + "\n]\n")


def _stored() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    return entries


def _independent_result(settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the stored result of the second implementation; None if it has not run."""
    return next((entry for entry in _stored() if entry["settings"] == settings), None)


def _origin() -> str:
    commits, dates = (sorted({entry[name] for entry in _stored()}) for name in ("commit", "date"))
    return f"Second implementation: commit {', '.join(commits)}; {', '.join(dates)}." if commits else ""


def _welch_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the difference of two means with its 95 % interval. Variances may differ (Welch's t)."""
    low, high = ttest_ind(a, b, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(float(low + high) / 2, float(high - low) / 2, len(a))


def agreement(results: Results) -> Section:
    """Compare the means of both implementations."""
    gaps: dict[str, list[Interval | None]] = {problem: [] for problem in PLANNED}
    rows, commands = [], []
    for comparison in comparisons(results):
        entry = _independent_result(comparison.settings)
        if entry is None:
            continue
        metric, values = METRICS[comparison.problem], list(seed_values(comparison.records).values())
        means = [mean for mean in entry["means"].values() if mean is not None]
        has_diverged = min(len(values), len(means)) < SEEDS
        gap = None if has_diverged else _welch_difference(values, means)
        gaps[comparison.problem].append(gap)
        rows.append([DATA[comparison.problem], comparison.label, f"{comparison.records[0].rounds:,}"])
        intervals = [confidence_interval(found) if found else None for found in (values, means)]
        rows[-1] += [markdown.value_text(interval, metric) for interval in intervals]
        rows[-1].append("diverged" if has_diverged else markdown.difference_text(gap, metric))
        commands.append(shlex.join(command(comparison.settings, "PATH")))
    header = ["data", "method", "rounds", "fedopt", "second implementation", "difference"]
    return Section(
        "agreement",
        "A second implementation shows no difference",
        {"agreement": markdown.table(header, rows), "commands": "\n".join(commands), "origin": _origin()},
        {DATA[problem]: rules.judge_agreement(gaps[problem], number) for problem, number in PLANNED.items()},
        "^$",
    )
