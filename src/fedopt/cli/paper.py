"""The paper's tables and figures: `fedopt reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli.options import Json, Seeds, Workers, parse_seed_option
from fedopt.errors import UserError, unknown


def reproduce(
    artifact: Annotated[
        str, typer.Argument(help="A table or figure of the paper; `list` shows them, `all` makes them all.")
    ],
    scale: Annotated[str, typer.Option(help="paper, small or smoke: how much is done.")] = "paper",
    data: Annotated[
        str | None,
        typer.Option(
            help="'synthetic', an imported dataset, or a directory of them by name; what `fedopt data` has "
            "imported by default, and the synthetic twin where there is none.",
            metavar="DIR",
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Only these, with commas between.", metavar="A,B,...")
    ] = None,
    variant: Annotated[str, typer.Option(help="as_run or as_printed: the server's mathematics.")] = "as_run",
    seeds: Seeds = None,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(help="reproduction/SCALE by default; continued if there.", metavar="DIR"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a table or figure of the paper again, beside the paper's numbers; the page is DIR/index.html."""
    from rich.console import Console

    from fedopt.algorithms import VARIANTS
    from fedopt.reproduction import listing
    from fedopt.reproduction import reproduce as reproduction
    from fedopt.reproduction.scales import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    if workers is not None and workers < 1:
        raise UserError(f"workers must be at least 1, got {workers}")
    errors = Console(stderr=True)
    if artifact == "list":
        given = {"--data": data, "--tasks": tasks, "--seeds": seeds, "--out": out}
        ignored = [name for name, value in given.items() if value is not None]
        if ignored:
            raise UserError(f"`reproduce list` would ignore {ignored[0]}; it shows every artifact and scale")
        found = listing.estimates(errors, workers)
        typer.echo(json.dumps(found)) if as_json else listing.print_list(found, Console())
        return
    chosen = tuple(parse_seed_option(seeds, None, ()) or (0,))
    place = out or Path("reproduction") / scale
    request = reproduction.Request(artifact, SCALES[scale], place, data, tasks, workers, variant, chosen)

    def say(text: str) -> None:
        errors.print(text, highlight=False, markup=False, soft_wrap=True)

    made = reproduction.reproduce(request, say)
    page = place / "index.html"
    if as_json:
        artifacts = [one.summary() for one in made]
        typer.echo(json.dumps({"scale": scale, "page": str(page), "artifacts": artifacts}))
        return
    for one in made:
        runs = f"{one.done} of {one.runs} runs done" if one.runs else "no runs needed"
        diverged = f", {one.diverged} diverged" if one.diverged else ""
        typer.echo(f"{one.name}: {runs}{diverged}; {one.directory}")
    typer.echo(f"page: {page}")
