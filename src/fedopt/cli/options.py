"""Arguments and options that several commands share, and what is made of them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

TaskArgument = Annotated[str, typer.Argument(help="A task of `fedopt tasks`.", metavar="TASK")]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]
Rounds = Annotated[int | None, typer.Option(help="Rounds in all; the task's own number by default.")]
Seed = Annotated[int | None, typer.Option(help="Fixes everything random.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Configuration, as key=value.", metavar="KEY=VALUE")
]
Workers = Annotated[int | None, typer.Option(help="Worker processes; one per core by default.")]
ExecutorName = Annotated[
    str, typer.Option("--executor", help="processes or serial; the results are the same.")
]
Data = Annotated[str, typer.Option(help="'synthetic' or a directory of imported data.", metavar="DIR")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Init = Annotated[Path | None, typer.Option(help="Start from these weights (safetensors).", metavar="FILE")]


def settings_of(settings: list[str] | None, rounds: int | None, seed: int | None) -> dict[str, Any]:
    from fedopt.experiments.config import parse_settings

    parsed = parse_settings(settings or [])
    return parsed | {k: v for k, v in (("rounds", rounds), ("seed", seed)) if v is not None}


def typed_command() -> str:
    """The command line that was typed, to be typed again."""
    return "fedopt " + shlex.join(sys.argv[1:])
