"""`fedopt bench`: how fast, beside the machine and beside other simulators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli.options import Json, Workers


def bench(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Tasks of `fedopt tasks`; all by default.", metavar="TASK")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Some of pfl, fedjax, flower; those that are installed by default, '' for none.",
            metavar="A,B,...",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Rounds of every side that count.")] = 5,
    workers: Workers = None,
    clients: Annotated[
        int | None, typer.Option(help="Clients in the round of all sides; the paper's number by default.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="At most so many steps of each client; all by default.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Begin no further repeat of a task after so many seconds.")
    ] = 300.0,
    write: Annotated[
        Path | None, typer.Option(help="Put the table between the markers of this document.", metavar="FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure rounds per second, beside the machine's matrix products and other simulators."""
    from fedopt.bench import command
    from fedopt.bench.document import Block

    def say(line: str) -> None:
        typer.echo(line, err=True)

    block = Block(write, "bench") if write is not None else None
    result = command.bench(tasks or [], against, repeats, workers, clients, steps, seconds, say)
    if block is not None:
        block.write(command.document_lines(result))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        command.print_result(result)
