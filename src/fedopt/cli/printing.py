"""Print the results of commands: text, tables and JSON objects."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedopt.api import RunGroup
from fedopt.formatting import ABSENT, count_noun, metric_unit
from fedopt.intervals import confidence_interval
from fedopt.reports.sentences import headline
from fedopt.reports.tables import comparison_table, print_sentences, wide_console
from fedopt.runs.records import averaged_rounds, last_evaluation
from fedopt.runs.result import RunResult


def result_text(result: RunResult) -> str:
    """The result of `fedopt run` in a few lines."""
    unit, last = metric_unit(result.metric), last_evaluation(result.test, result.metric)
    mean = f"mean of {averaged_rounds([result.rounds])}"
    rows = [
        (unit.name, _text(last.value, unit.format), f"last evaluation, round {last.round}"),
        ("", _text(result.value, unit.format), mean),
        ("train loss", _text(result.train_loss, "{:.4f}".format), mean),
    ]
    if result.full_test is not None:
        for name, value in result.full_test.items():
            rows.append((metric_unit(name).name, _text(value, metric_unit(name).format), "full test set"))
    name_width, value_width = (max(len(row[at]) for row in rows) for at in (0, 1))
    lines = [
        f"{result.task} {result.algorithm}, {count_noun(result.rounds, 'round')}, seed {result.seed}, "
        f"{result.data} data",
        *(f"  {name:<{name_width}}  {value:>{value_width}}  {note}" for name, value, note in rows),
        f"  {result.params:,} parameters, x sha256 {result.x_sha256[:16]}",
    ]
    if result.location is not None:
        run = shlex.quote(result.location)
        lines += [
            f"  run: {result.location}",
            "next:",
            *(f"  fedopt {command} {run}" for command in ("eval", "report", "export")),
        ]
    return "\n".join(lines)


def _text(value: float | None, to_text: Callable[[float], str]) -> str:
    return ABSENT if value is None else to_text(value)


def seeds_json(group: RunGroup) -> dict[str, Any]:
    """The JSON object of `fedopt run --seeds`."""
    info = group.records()[0].info
    return {
        "task": info["task"],
        "algorithm": info["algorithm"],
        "metric": info["metric"],
        "runs": [result.summary() for result in group.results],
        **_interval_json(group.results),
    }


def comparison_json(group: RunGroup) -> dict[str, Any]:
    """The JSON object of `fedopt compare`. With several seeds it has the mean of each algorithm."""
    document: dict[str, Any] = {
        "runs": [result.summary() for result in group.results],
        "report": str(group.report),
    }
    if any(path.name.startswith("seed-") for path in group.paths):
        names = dict.fromkeys(result.algorithm for result in group.results)
        document["groups"] = [
            {"algorithm": name} | _interval_json([r for r in group.results if r.algorithm == name])
            for name in names
        ]
    return document


def _interval_json(results: Sequence[RunResult]) -> dict[str, Any]:
    """The mean over seeds, of the last evaluation and of the mean over the last 100 rounds."""
    last, value = (
        confidence_interval(known) if (known := [v for v in values if v is not None]) else None
        for values in ([result.last for result in results], [result.value for result in results])
    )
    mean, half_width, n = value or (None, None, 0)
    last_mean, last_half_width, _ = last or (None, None, 0)
    return {
        "mean": mean,
        "half_width": half_width,
        "n": n,
        "last": last_mean,
        "last_half_width": last_half_width,
    }


def print_seeds(group: RunGroup) -> None:
    """Print the mean over the seeds and a table."""
    _print_table(group)
    print(f"runs: {group.out}")
    print(f"next: fedopt report {shlex.quote(str(group.out))}")


def print_comparison(group: RunGroup) -> None:
    best = _print_table(group)
    print(f"report: {group.report}")
    print(f"next: fedopt eval {shlex.quote(str(best))}")


def _print_table(group: RunGroup) -> Path:
    """Print the result in one sentence and the table. Return the directory of the best run."""
    console, comparison = wide_console(), group.comparison()
    print_sentences(console, headline(comparison), "")
    console.print(comparison_table(comparison).fit(console.width))
    return comparison.best.record.path
