"""Print the results of commands: text, tables and JSON objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from fedopt.analysis.headline import headline
from fedopt.analysis.seeds import Interval, confidence_interval
from fedopt.analysis.summary import compare_runs
from fedopt.api import RunGroup
from fedopt.display.fitting_table import print_sentences, wide_console
from fedopt.display.table import comparison_table
from fedopt.formatting import metric_unit
from fedopt.runs.records import LAST_ROUNDS
from fedopt.runs.result import RunResult


def result_text(result: RunResult) -> str:
    """The result of `fedopt run` in a few lines."""
    unit = metric_unit(result.metric)
    value = "none" if result.value is None else unit.format(result.value)
    loss = "none" if result.train_loss is None else f"{result.train_loss:.4f}"
    last = f"the last {min(LAST_ROUNDS, result.rounds)} rounds"
    lines = [
        f"{result.task} {result.algorithm}, {result.rounds} rounds, seed {result.seed}, {result.data} data",
        f"  {unit.name}  {value}   (mean over the evaluations of {last})",
        f"  train loss  {loss}   (mean over {last})",
    ]
    if result.full_test is not None:
        values = [f"{name} {value:.4f}" for name, value in result.full_test.items() if value is not None]
        lines.append(f"  full test set  {', '.join(values)}")
    lines.append(f"  parameters  {result.params:,}   x sha256 {result.x_sha256[:16]}")
    lines.append(f"  run         {result.path}")
    return "\n".join(lines)


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
    mean, half_width, n = _value_interval(results) or (None, None, 0)
    return {"mean": mean, "half": half_width, "n": n}


def _value_interval(results: Sequence[RunResult]) -> Interval | None:
    """The mean value of the runs with its confidence interval, if any run has a value."""
    values = [result.value for result in results if result.value is not None]
    return confidence_interval(values) if values else None


def print_seeds(group: RunGroup) -> None:
    """The mean over the seeds, then a table of the runs."""
    records = group.records()
    summary = _value_interval(group.results)
    if summary:
        mean, half_width, n = summary
        unit = metric_unit(group.results[0].metric)
        margin = "" if half_width is None else f" ± {unit.format(half_width)}"
        note = f"mean over {n} seed{'s' if n > 1 else ''}" + ("" if half_width is None else ", 95 % interval")
        print(f"{unit.name}  {unit.format(mean)}{margin}   ({note})")
    _print_table(records)
    print(f"runs: {group.out}")


def print_comparison(group: RunGroup) -> None:
    _print_table(group.records())
    print(f"report: {group.report}")


def _print_table(records: Sequence[Any]) -> None:
    console = wide_console()
    comparison = compare_runs(records)
    print_sentences(console, headline(comparison), "")
    console.print(comparison_table(comparison, width=console.width))


def print_evaluation(measured: Mapping[str, Any]) -> None:
    """The table of `fedopt eval`."""
    unit = metric_unit(measured["metric"])
    title = "{run}, round {round}, {split} split, {data} data".format_map(measured)
    table = Table(title=title)
    table.add_column("over")
    table.add_column(unit.name, justify="right")
    rows = {f"all {measured['examples']:,} examples": measured[measured["metric"]]}
    rows |= {f"clients, {q}th percentile": v for q, v in measured["percentiles_over_clients"].items()}
    for name, value in rows.items():
        table.add_row(name, "-" if value is None else unit.format(value))
    console = Console()
    console.print(table)
    loss = "not finite" if measured["loss"] is None else f"{measured['loss']:.4f}"
    console.print(f"loss {loss} over {measured['clients']:,} clients", highlight=False)
