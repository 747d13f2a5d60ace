"""The command line: thin. Each command parses, calls one function, prints its result on stdout."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedopt.data_cli import app as data_app
from fedopt.errors import FedoptError, RunError, UserError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train models across many clients whose data never leaves them; compare and tune the optimizers.",
)

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


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        from fedopt.version import __version__

        typer.echo(f"fedopt {__version__}")
        raise typer.Exit()


@app.command()
def run(
    task: TaskArgument,
    algorithm: Annotated[str, typer.Option(help="An algorithm of `fedopt algorithms`.")] = "fedavg",
    rounds: Rounds = None,
    seed: Seed = None,
    settings: Set = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = "synthetic",
    out: Annotated[
        Path | None, typer.Option(help="Run directory; continued if it exists.", metavar="DIR")
    ] = None,
    init: Init = None,
    show_config: Annotated[bool, typer.Option(help="Print the resolved configuration and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train TASK by one algorithm; on an existing run directory, continue it."""
    from fedopt.experiments import commands

    request = commands.Request(task, _settings(settings, rounds, seed), data, init)
    if show_config:
        typer.echo(commands.show_config(request, algorithm), nl=False)
        return
    result = commands.run(request, algorithm, executor, workers, out, _command())
    typer.echo(json.dumps(result.summary()) if as_json else commands.describe(result))


@app.command()
def compare(
    task: TaskArgument,
    algorithms: Annotated[str, typer.Option(help="Names, with commas between.", metavar="A,B,...")],
    rounds: Rounds = None,
    seed: Seed = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value for all, or ALGORITHM:key=value for one.", metavar="KEY=VALUE"),
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = "processes",
    data: Data = "synthetic",
    out: Annotated[Path | None, typer.Option(help="For the runs and the report.", metavar="DIR")] = None,
    as_json: Json = False,
) -> None:
    """Train TASK by several algorithms; one table, and one page of curves in DIR/report.html."""
    from fedopt.experiments import commands

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    results, failed, report = commands.compare(
        task, names, settings or [], rounds, seed, data, executor, workers, out
    )
    if as_json:
        typer.echo(json.dumps({"runs": [r.summary() for r in results], "report": str(report)}))
    else:
        commands.print_comparison([report.parent / name for name in names], report)
    if failed:
        raise RunError("; ".join(failed))


@app.command()
def eval(
    run: RunArgument,
    split: Annotated[str, typer.Option(help="test or train.")] = "test",
    workers: Workers = None,
    executor: ExecutorName = "processes",
    as_json: Json = False,
) -> None:
    """Measure a run's model on every example of a split, with percentiles over clients."""
    from fedopt.experiments import commands

    measured = commands.evaluate(run, split, executor, workers)
    typer.echo(json.dumps(measured)) if as_json else commands.print_evaluation(measured)


@app.command()
def export(
    run: RunArgument,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="Directory; RUN/export by default.")] = None,
) -> None:
    """Write a run's model as safetensors under its own parameter names, with a model card."""
    from fedopt.experiments.export import export as export_run

    for path in export_run(run, to or run / "export"):
        typer.echo(str(path))


app.add_typer(data_app, name="data")


@app.command()
def tasks() -> None:
    """List the tasks with the paper's settings."""
    from fedopt.experiments import listings

    listings.print_tasks()


@app.command()
def algorithms() -> None:
    """List the algorithms with their options."""
    from fedopt.experiments import listings

    listings.print_algorithms()


def _settings(settings: list[str] | None, rounds: int | None, seed: int | None) -> dict[str, Any]:
    from fedopt.experiments.config import parse_settings

    parsed = parse_settings(settings or [])
    return parsed | {k: v for k, v in (("rounds", rounds), ("seed", seed)) if v is not None}


def _command() -> str:
    """The command line that was typed, to be typed again."""
    return "fedopt " + shlex.join(sys.argv[1:])


def main() -> None:
    """Exit codes: 0 done, 1 the run failed, 2 the user's mistake, 130 interrupted."""
    try:
        app()
    except FedoptError as error:
        if "--debug" in sys.argv:
            raise
        kind = "error" if isinstance(error, UserError) else "failed"
        typer.echo(f"{kind}: {error}", err=True)
        sys.exit(error.exit_code)
    except SystemExit as leaving:
        if leaving.code == 130:  # typer's answer to an interrupt
            typer.echo("interrupted; the same command continues from the last checkpoint, if any", err=True)
        raise
    except BrokenPipeError:
        sys.exit(0)  # the reader of our output has left


if __name__ == "__main__":
    main()
