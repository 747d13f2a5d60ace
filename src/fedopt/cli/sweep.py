"""Tuning from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli.options import (
    Data,
    Json,
    Rounds,
    Seed,
    Seeds,
    Set,
    TaskArgument,
    TensorBoard,
    Workers,
    parse_seed_option,
    parse_set_options,
)


def sweep(
    task: TaskArgument,
    algorithm: Annotated[str, typer.Option(help="Names, with commas between.", metavar="A,B,...")],
    grid: Annotated[
        str,
        typer.Option(
            help="'paper', a TOML file, or text such as 'client_lr=-3:0.5:0.5, server_lr=-1|0, tau=-3': "
            "log10 as first:last:step or values.",
            metavar="GRID",
        ),
    ] = "paper",
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Set = None,
    select: Annotated[
        str, typer.Option(help="What the best trial is best by: train_loss, as in the paper, or a metric.")
    ] = "train_loss",
    search: Annotated[str, typer.Option(help="grid, halving or optuna.")] = "grid",
    trials: Annotated[
        int | None,
        typer.Option(help="optuna: trials for each algorithm; a third of the grid by default, 12 at least."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Whose checkpoints stay at the end: best or all.")] = "best",
    workers: Workers = None,
    data: Data = "synthetic",
    out: Annotated[
        Path | None, typer.Option(help="For trials, table and report; continued if it exists.", metavar="DIR")
    ] = None,
    tensorboard: TensorBoard = False,
    as_json: Json = False,
) -> None:
    """Tune algorithms on TASK: trials side by side, the best of each by the paper's rule, one report."""
    from fedopt.sweep import command, results

    names = tuple(name.strip() for name in algorithm.split(",") if name.strip())
    several = parse_seed_option(seeds, seed, settings or [])
    chosen = parse_set_options(settings, rounds, seed)
    one = chosen.pop("seed", 0)
    asked = results.Asked(
        task=task,
        algorithms=names,
        grid=grid,
        settings=chosen,
        seeds=several or [one],
        data=data,
        select=select,
        search=search,
        trials=trials,
        keep=keep,
        tensorboard=tensorboard,
    )
    swept = command.sweep(asked, workers, out)
    typer.echo(json.dumps(results.summary(swept))) if as_json else results.print_sweep(swept)
