"""Training, comparing and measuring: each command parses, calls one function, prints its result on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli.options import (
    Data,
    Device,
    ExecutorName,
    Init,
    Json,
    Rounds,
    RunArgument,
    Seed,
    Seeds,
    Set,
    TaskArgument,
    TensorBoard,
    Workers,
    seeds_of,
    settings_of,
    typed_command,
)
from fedopt.errors import RunError


def run(
    task: TaskArgument,
    algorithm: Annotated[str, typer.Option(help="An algorithm of `fedopt algorithms`.")] = "fedavg",
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Set = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = "synthetic",
    out: Annotated[
        Path | None,
        typer.Option(help="Run directory, continued if it exists; with --seeds, one for all.", metavar="DIR"),
    ] = None,
    init: Init = None,
    tensorboard: TensorBoard = False,
    device: Device = "cpu",
    show_config: Annotated[bool, typer.Option(help="Print the resolved configuration and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train TASK by one algorithm; on an existing run directory, continue it."""
    from fedopt.engine.executors.devices import vectorised_on
    from fedopt.runs import commands

    several_seeds = seeds_of(seeds, seed, settings or [])
    where = vectorised_on(executor, device)
    request = commands.Request(task, settings_of(settings, rounds, seed), data, init, tensorboard, where)
    if show_config:
        typer.echo(commands.show_config(request, algorithm), nl=False)
        return
    if several_seeds is None:
        result = commands.run(request, algorithm, executor, workers, out, typed_command())
        typer.echo(json.dumps(result.summary()) if as_json else commands.describe(result))
        return
    several = commands.run_seeds(request, algorithm, several_seeds, executor, workers, out)
    if as_json:
        typer.echo(json.dumps(commands.seeds_json(task, algorithm, several)))
    else:
        commands.print_seeds(several)
    if several.failed:
        raise RunError("; ".join(several.failed))


def compare(
    task: TaskArgument,
    algorithms: Annotated[str, typer.Option(help="Names, with commas between.", metavar="A,B,...")],
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value for all, or ALGORITHM:key=value for one.", metavar="KEY=VALUE"),
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = "synthetic",
    out: Annotated[Path | None, typer.Option(help="For the runs and the report.", metavar="DIR")] = None,
    tensorboard: TensorBoard = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Train TASK by several algorithms; one table, and one page of curves in DIR/report.html."""
    from fedopt.engine.executors.devices import vectorised_on
    from fedopt.runs import commands

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    several_seeds = seeds_of(seeds, seed, settings or [])
    where = vectorised_on(executor, device)
    request = commands.Request(task, settings_of([], rounds, seed), data, None, tensorboard, where)
    several, report = commands.compare(request, names, settings or [], several_seeds, executor, workers, out)
    if as_json:
        typer.echo(json.dumps(commands.comparison_json(several, report, several_seeds is not None)))
    else:
        commands.print_comparison(several, report)
    if several.failed:
        raise RunError("; ".join(several.failed))


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Runs, comparisons, sweeps, or directories of them.", metavar="DIR"),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page; report.html in DIR, or here if there are several."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's headline.")] = None,
) -> None:
    """Write one self-contained page on any runs of one task: curves, tables, settings, commands."""
    from fedopt.runs import commands

    page, damaged = commands.report(directories, output, title)
    for line in damaged:
        typer.echo(f"warning: left out: {line}", err=True)
    typer.echo(str(page))


def eval(
    run: RunArgument,
    split: Annotated[
        str, typer.Option(help="test, train, or another split of the imported data, such as heldout.")
    ] = "test",
    workers: Workers = None,
    executor: ExecutorName = "processes",
    as_json: Json = False,
) -> None:
    """Measure a run's model on every example of a split, with percentiles over clients."""
    from fedopt.runs.evaluation import evaluate, print_evaluation

    measured = evaluate(run, split, executor, workers)
    typer.echo(json.dumps(measured)) if as_json else print_evaluation(measured)


def export(
    run: RunArgument,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="Directory; RUN/export by default.")] = None,
) -> None:
    """Write a run's model as safetensors under its own parameter names, with a model card."""
    from fedopt.runs.export import export as export_run

    for path in export_run(run, to or run / "export"):
        typer.echo(str(path))


def tasks() -> None:
    """List the tasks with the paper's settings."""
    from fedopt.cli import listings

    listings.print_tasks()


def algorithms() -> None:
    """List the algorithms with their options."""
    from fedopt.cli import listings

    listings.print_algorithms()
