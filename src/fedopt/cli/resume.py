"""The command `fedopt resume`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedopt.cli.options import ExecutorName, Json, RayAddress, Workers, announce_run
from fedopt.errors import RunError


def resume(
    directory: Annotated[
        str,
        typer.Argument(
            help="A run, a comparison, several seeds or a sweep; or the URL of a run.", metavar="DIR|URL"
        ),
    ],
    workers: Workers = None,
    executor: ExecutorName = "processes",
    ray_address: RayAddress = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="With a URL: take over a run that another machine started."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Continue an unfinished run, comparison or sweep. All settings are read from DIR."""
    announce_run(directory, "resume")
    from fedopt import api
    from fedopt.cli import printing
    from fedopt.runs.result import RunResult
    from fedopt.tuning.result_files import summary
    from fedopt.tuning.table import print_sweep

    result = api.resume(
        directory,
        executor=executor,
        workers=workers,
        ray_address=ray_address,
        progress=True,
        take_over=take_over,
    )
    if isinstance(result, RunResult):
        typer.echo(json.dumps(result.summary()) if as_json else printing.result_text(result))
    elif isinstance(result, api.TuningResult):
        typer.echo(json.dumps(summary(result.sweep))) if as_json else print_sweep(result.sweep)
    else:
        document = printing.seeds_json if result.report is None else printing.comparison_json
        show = printing.print_seeds if result.report is None else printing.print_comparison
        typer.echo(json.dumps(document(result))) if as_json else show(result)
        if result.failures:
            raise RunError("; ".join(result.failures))
