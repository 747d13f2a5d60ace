"""`fedopt bench`: measure speed, compared with matrix products and other simulators."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli.options import Json, Workers, announce


def bench(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="The paper's tasks, small_lr or small_mlp; default: all.", metavar="TASK"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Some of pfl, fedjax, flower; default: all that are installed, '' for none.",
            metavar="A,B,...",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Measured rounds of each simulator.")] = 5,
    workers: Workers = None,
    clients: Annotated[
        int | None, typer.Option(help="Clients per round for all simulators; default: the workload's number.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Maximum steps per client; default: no maximum.")] = None,
    seconds: Annotated[
        float, typer.Option(help="Start no further repeat of a task after this many seconds.")
    ] = 300.0,
    write: Annotated[
        Path | None,
        typer.Option(help="Write the table between the markers of this document.", metavar="FILE"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure rounds per second, compared with matrix products and other simulators."""
    announce("bench", ", ".join(tasks or ["all tasks"]))
    from fedopt.bench import command
    from fedopt.bench.marked_block import MarkedBlock
    from fedopt.bench.result_table import markdown_lines, print_result

    block = MarkedBlock(write, "bench") if write is not None else None
    log = partial(typer.echo, err=True)
    result = command.bench(tasks or [], against, repeats, workers, clients, steps, seconds, log)
    if block is not None:
        block.write(markdown_lines(result))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        print_result(result)
