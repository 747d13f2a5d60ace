"""Training, comparing and measuring: each command parses, calls one function, prints its result on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli.options import (
    Data,
    ExecutorName,
    Init,
    Json,
    Rounds,
    RunArgument,
    Seed,
    Set,
    TaskArgument,
    Workers,
    settings_of,
    typed_command,
)
from fedopt.errors import RunError


def run(
    task: TaskArgument,
    algorithm: Annotated[str, typer.Option(help="An algorithm of `fedopt algorithms`.")] = "fedavg",
    rounds: Rounds = None,
    seed: Seed = None,
    settings: Set = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = "synthetic",
    out: Annotated[
        Path | None, typer.Option(help="Run directory; continued if it exists.", metavar="DIR")
    ] = None,
    init: Init = None,
    show_config: Annotated[bool, typer.Option(help="Print the resolved configuration and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train TASK by one algorithm; on an existing run directory, continue it."""
    from fedopt.experiments import commands

    request = commands.Request(task, settings_of(settings, rounds, seed), data, init)
    if show_config:
        typer.echo(commands.show_config(request, algorithm), nl=False)
        return
    result = commands.run(request, algorithm, executor, workers, out, typed_command())
    typer.echo(json.dumps(result.summary()) if as_json else commands.describe(result))


def compare(
    task: TaskArgument,
    algorithms: Annotated[str, typer.Option(help="Names, with commas between.", metavar="A,B,...")],
    rounds: Rounds = None,
    seed: Seed = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value for all, or ALGORITHM:key=value for one.", metavar="KEY=VALUE"),
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = "synthetic",
    out: Annotated[Path | None, typer.Option(help="For the runs and the report.", metavar="DIR")] = None,
    as_json: Json = False,
) -> None:
    """Train TASK by several algorithms; one table, and one page of curves in DIR/report.html."""
    from fedopt.experiments import commands

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    results, failed, report = commands.compare(
        task, names, settings or [], rounds, seed, data, executor, workers, out
    )
    if as_json:
        typer.echo(json.dumps({"runs": [r.summary() for r in results], "report": str(report)}))
    else:
        commands.print_comparison([report.parent / name for name in names], report)
    if failed:
        raise RunError("; ".join(failed))


def eval(
    run: RunArgument,
    split: Annotated[str, typer.Option(help="test or train.")] = "test",
    workers: Workers = None,
    executor: ExecutorName = "processes",
    as_json: Json = False,
) -> None:
    """Measure a run's model on every example of a split, with percentiles over clients."""
    from fedopt.experiments import commands

    measured = commands.evaluate(run, split, executor, workers)
    typer.echo(json.dumps(measured)) if as_json else commands.print_evaluation(measured)


def export(
    run: RunArgument,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="Directory; RUN/export by default.")] = None,
) -> None:
    """Write a run's model as safetensors under its own parameter names, with a model card."""
    from fedopt.experiments.export import export as export_run

    for path in export_run(run, to or run / "export"):
        typer.echo(str(path))


def tasks() -> None:
    """List the tasks with the paper's settings."""
    from fedopt.experiments import listings

    listings.print_tasks()


def algorithms() -> None:
    """List the algorithms with their options."""
    from fedopt.experiments import listings

    listings.print_algorithms()
