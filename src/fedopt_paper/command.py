"""`fedopt reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedopt.cli import Json, RayAddress, Seeds, TrialExecutorName, Workers, announce, parse_seed_option
from fedopt.errors import UserError, unknown
from fedopt.remote import local_path


def reproduce(
    artifact: Annotated[
        str,
        typer.Argument(help="A table or figure of the paper; `list` shows them, `all` makes all of them."),
    ],
    scale: Annotated[str, typer.Option(help="paper, small or smoke: how much is computed.")] = "paper",
    data: Annotated[
        str | None,
        typer.Option(
            help="'synthetic', an imported dataset, or a directory of datasets by name. Default: the data "
            "that `fedopt data` has imported, and synthetic data for the rest.",
            metavar="DIR",
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Only these tasks, separated by commas.", metavar="A,B,...")
    ] = None,
    variant: Annotated[
        str, typer.Option(help="as_run or as_printed: the mathematics of the server.")
    ] = "as_run",
    seeds: Seeds = None,
    workers: Workers = None,
    executor: TrialExecutorName = "processes",
    ray_address: RayAddress = None,
    out: Annotated[
        str | None,
        typer.Option(help="Default: reproduction/SCALE. An existing one is continued.", metavar="DIR"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure and compare it with the paper's numbers; the page is DIR/index.html."""
    announce("reproduce", artifact, "" if artifact == "list" else f"scale {scale}")
    from rich.console import Console

    from fedopt.algorithms import VARIANTS
    from fedopt.engine import ExecutorOptions
    from fedopt.tuning import check_trial_executor
    from fedopt_paper import cost_estimate
    from fedopt_paper.reproduce import ReproduceOptions
    from fedopt_paper.reproduce import reproduce as run_reproduction
    from fedopt_paper.scales import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    executor_options = ExecutorOptions(executor, workers, ray_address=ray_address)
    check_trial_executor(executor_options)
    stderr = Console(stderr=True)
    if artifact == "list":
        options = {"--data": data, "--tasks": tasks, "--seeds": seeds, "--out": out}
        ignored = [name for name, value in options.items() if value is not None]
        if ignored:
            raise UserError(f"`reproduce list` shows all artifacts and scales; omit {ignored[0]}")
        estimates = cost_estimate.estimate_all(stderr, workers)
        typer.echo(json.dumps(estimates)) if as_json else cost_estimate.print_list(estimates, Console())
        return
    directory = Path("reproduction") / scale if out is None else local_path(out, "--out")
    seed_list = tuple(parse_seed_option(seeds, None, ()) or (0,))
    outcomes = run_reproduction(
        ReproduceOptions(
            artifact, SCALES[scale], directory, data, tasks, executor_options, variant, seed_list
        ),
        lambda message: stderr.print(message, highlight=False, markup=False, soft_wrap=True),
    )
    page = directory / "index.html"
    if as_json:
        artifacts = [outcome._asdict() | {"directory": str(outcome.directory)} for outcome in outcomes]
        typer.echo(json.dumps({"scale": scale, "page": str(page), "artifacts": artifacts}))
        return
    for outcome in outcomes:
        runs = f"{outcome.done} of {outcome.runs} runs done" if outcome.runs else "no runs needed"
        diverged = f", {outcome.diverged} diverged" if outcome.diverged else ""
        typer.echo(f"{outcome.name}: {runs}{diverged}; {outcome.directory}")
    typer.echo(f"page: {page}")
