"""Commands for runs: run, compare, report, eval, export and the listings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopt.cli.completion import ALGORITHM_NAMES, TASK_NAMES, complete_algorithm
from fedopt.cli.options import (
    Algorithms,
    Data,
    Device,
    ExecutorName,
    Init,
    Json,
    LogOption,
    OwnTask,
    RayAddress,
    RayGpus,
    Rounds,
    RuleOption,
    RunArgument,
    Seed,
    Seeds,
    Set,
    TaskArgument,
    TensorBoard,
    Workers,
    announce,
    announce_run,
    announce_training,
    announce_variant,
    parse_log_option,
    parse_seed_option,
    parse_set_options,
    select_settings,
    start_workers_early,
    typed_command,
)
from fedopt.errors import RunError
from fedopt.remote.location import local_path, parse_location

if TYPE_CHECKING:
    from fedopt.api import RunGroup


def run(
    task: TaskArgument,
    algorithm: Annotated[
        str,
        typer.Option(
            help="An algorithm of `fedopt algorithms`, or module:name of your own.",
            autocompletion=complete_algorithm,
        ),
    ] = "fedavg",
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Set = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Run directory or its URL, such as s3://bucket/run; an existing run is resumed. "
            "With --seeds: their parent.",
            metavar="DIR|URL",
        ),
    ] = None,
    init: Init = None,
    tensorboard: TensorBoard = False,
    log: LogOption = None,
    device: Device = "cpu",
    ray_address: RayAddress = None,
    ray_gpus: RayGpus = None,
    show_config: Annotated[
        bool, typer.Option(help="Print the resolved configuration with a description of every key, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train TASK with one algorithm. An existing run directory is resumed."""
    announce_training(task, algorithm, data)
    start_workers_early(executor)
    from fedopt import api
    from fedopt.cli import printing
    from fedopt.engine.executors import ExecutorOptions
    from fedopt.runs.loggers import create_loggers

    tensorboard, loggers = parse_log_option(log, tensorboard)
    several_seeds = parse_seed_option(seeds, seed, settings or [])
    parsed = parse_set_options(settings, rounds, seed)
    announce_variant(task, parsed)
    request = api.RunRequest(
        task,
        algorithm,
        parsed,
        data,
        init,
        ExecutorOptions(executor, workers, device, ray_address, ray_gpus),
        tensorboard,
        loggers,
    )
    if several_seeds is not None and not show_config:
        parent = None if out is None else local_path(out, "--out")
        group = api.run_seeds(request, several_seeds, out=parent, progress=True)
        if as_json:
            typer.echo(json.dumps(printing.seeds_json(group)))
        else:
            printing.print_seeds(group)
        _raise_failures(group)
        return
    (request,), choice = api.with_chosen_executor([request])
    prepared = request.prepare()
    if show_config:
        from fedopt.runs.key_descriptions import annotated_toml

        typer.echo(annotated_toml(prepared.config, algorithm), nl=False)
        return
    result = api.run_prepared(
        prepared,
        request.executor,
        message=choice,
        out=api.default_directory(prepared.config) if out is None else parse_location(out),
        command=typed_command(),
        tensorboard=tensorboard,
        loggers=create_loggers(loggers),
        progress=True,
    )
    typer.echo(json.dumps(result.summary()) if as_json else printing.result_text(result))


def compare(
    task: TaskArgument,
    algorithms: Algorithms,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value for all, or ALGORITHM:key=value for one.", metavar="KEY=VALUE"),
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = None,
    out: Annotated[
        str | None, typer.Option(help="Directory for the runs and the report.", metavar="DIR")
    ] = None,
    tensorboard: TensorBoard = False,
    log: LogOption = None,
    device: Device = "cpu",
    ray_address: RayAddress = None,
    ray_gpus: RayGpus = None,
    rule: RuleOption = "last",
    as_json: Json = False,
) -> None:
    """Train TASK with several algorithms. Prints a table and writes DIR/report.html."""
    announce_training(task, algorithms, data)
    start_workers_early(executor)
    from fedopt import api
    from fedopt.cli import printing
    from fedopt.engine.executors import ExecutorOptions

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    tensorboard, loggers = parse_log_option(log, tensorboard)
    several_seeds = parse_seed_option(seeds, seed, settings or [])
    options = ExecutorOptions(executor, workers, device, ray_address, ray_gpus)
    requests = [
        api.RunRequest(
            task,
            name,
            parse_set_options(select_settings(name, settings or [], names), rounds, seed),
            data,
            executor=options,
            tensorboard=tensorboard,
            log=loggers,
        )
        for name in names
    ]
    directory = None if out is None else local_path(out, "--out")
    group = api.compare_requests(requests, seeds=several_seeds, out=directory, rule=rule, progress=True)
    if as_json:
        typer.echo(json.dumps(printing.comparison_json(group)))
    else:
        printing.print_comparison(group)
    _raise_failures(group)


def _raise_failures(group: RunGroup) -> None:
    if group.failures:
        raise RunError("; ".join(group.failures))


def report(
    directories: Annotated[
        list[str],
        typer.Argument(
            help="Runs, comparisons, sweeps, directories of them, or their URLs.", metavar="DIR|URL"
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Output file; default: report.html in DIR, or here for several and for URLs.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's headline.")] = None,
    rule: RuleOption = "last",
) -> None:
    """Write a self-contained HTML page about runs of one task: curves, tables, settings, commands."""
    announce("report", *directories[:3], "..." if len(directories) > 3 else "")
    from fedopt import api

    page, damaged = api.write_page(
        [parse_location(directory) for directory in directories],
        None if output is None else local_path(output, "--output"),
        title,
        rule,
    )
    for message in damaged:
        typer.echo(f"warning: left out: {message}", err=True)
    typer.echo(str(page))


def eval(
    run: RunArgument,
    split: Annotated[
        str, typer.Option(help="test, train, or another split of the imported data, such as heldout.")
    ] = "test",
    sample: Annotated[
        int | None,
        typer.Option(help="Number of randomly chosen clients, for an estimate with a confidence interval."),
    ] = None,
    task: OwnTask = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    as_json: Json = False,
) -> None:
    """Evaluate a run's model on every example of a split, with percentiles over clients."""
    announce_run(run, f"{split} split")
    start_workers_early(executor)
    from fedopt import api

    measured = api.evaluate(
        run, split, task=task, sample=sample, executor=executor, workers=workers, progress=True
    )
    typer.echo(json.dumps(measured.document()) if as_json else str(measured))


def export(
    run: RunArgument,
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", help="Directory; default: RUN/export, or export here for a URL."),
    ] = None,
    task: OwnTask = None,
) -> None:
    """Write a run's model as safetensors with its own parameter names, and a model card."""
    announce_run(run, "export")
    from fedopt import api

    for path in api.export(run, to, task=task):
        typer.echo(str(path))


def tasks() -> None:
    """List the tasks with the paper's settings."""
    typer.echo(", ".join(TASK_NAMES))
    from fedopt.cli import listings

    listings.print_tasks()


def algorithms() -> None:
    """List the algorithms with their options."""
    typer.echo(", ".join(ALGORITHM_NAMES))
    from fedopt.cli import listings

    listings.print_algorithms()
