"""The command `fedopt sweep`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedopt.cli.options import (
    Algorithms,
    Data,
    Json,
    LogOption,
    RayAddress,
    Rounds,
    Seed,
    Seeds,
    Set,
    TaskArgument,
    TensorBoard,
    Workers,
    announce_training,
    parse_log_option,
    parse_seed_option,
    parse_set_options,
)
from fedopt.remote.location import local_path


def sweep(
    task: TaskArgument,
    algorithms: Algorithms,
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
        str, typer.Option(help="Criterion for the best trial: train_loss, as in the paper, or a metric.")
    ] = "train_loss",
    search: Annotated[str, typer.Option(help="grid, halving or optuna.")] = "grid",
    trials: Annotated[
        int | None,
        typer.Option(help="optuna: trials per algorithm; by default a third of the grid, at least 12."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Trials whose checkpoints are kept: best or all.")] = "best",
    executor: Annotated[
        str | None,
        typer.Option(
            help="vectorised or compiled: train trials that differ in rates, seeds and servers together, for "
            "small models. ray: trials on a Ray cluster. auto: compiled if the model is small. By default, "
            "each trial runs on one core.",
        ),
    ] = None,
    workers: Workers = None,
    ray_address: RayAddress = None,
    data: Data = None,
    out: Annotated[
        str | None,
        typer.Option(help="Directory of the sweep; resumed if it exists.", metavar="DIR"),
    ] = None,
    tensorboard: TensorBoard = False,
    log: LogOption = None,
    as_json: Json = False,
) -> None:
    """Tune algorithms on TASK: parallel trials, the best of each by the paper's rule, one report."""
    announce_training(task, algorithms, data, f"grid {grid}")
    from fedopt.engine.executors import ExecutorOptions
    from fedopt.tuning.command import sweep as run_sweep
    from fedopt.tuning.request import EXECUTORS, SweepRequest
    from fedopt.tuning.result_files import summary
    from fedopt.tuning.table import print_sweep

    tensorboard, loggers = parse_log_option(log, tensorboard)
    seed_list = parse_seed_option(seeds, seed, settings or [])
    chosen = parse_set_options(settings, rounds, seed)
    single_seed = chosen.pop("seed", 0)
    request = SweepRequest(
        task=task,
        algorithms=tuple(name.strip() for name in algorithms.split(",") if name.strip()),
        grid=grid,
        settings=chosen,
        seeds=seed_list or [single_seed],
        data=data,
        select=select,
        search=search,
        trials=trials,
        keep=keep,
        tensorboard=tensorboard,
        log=loggers,
        executor=executor if executor in EXECUTORS else None,
    )
    directory = None if out is None else local_path(out, "--out")
    result = run_sweep(request, ExecutorOptions(executor, workers, ray_address=ray_address), directory)
    if as_json:
        typer.echo(json.dumps(summary(result)))
    else:
        print_sweep(result)
