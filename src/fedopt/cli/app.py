"""The command `fedopt`: its commands in one list, and how errors leave it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from fedopt.cli import bench, data, reproduce, runs, sweep
from fedopt.engine.allocation import keep_freed_memory
from fedopt.errors import FedoptError, UserError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train models across many clients whose data never leaves them; compare and tune the optimizers.",
)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        from fedopt.version import __version__

        typer.echo(f"fedopt {__version__}")
        raise typer.Exit()


COMMANDS: tuple[Callable[..., None], ...] = (
    runs.run,
    runs.compare,
    sweep.sweep,
    runs.eval,
    runs.export,
    runs.report,
    reproduce.reproduce,
    bench.bench,
    runs.tasks,
    runs.algorithms,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Exit codes: 0 done, 1 the run failed, 2 the user's mistake, 130 interrupted."""
    keep_freed_memory()
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
    except OSError as error:  # of a path that no system takes, or a disk that fails in an unexpected place
        if "--debug" in sys.argv or error.filename is None:
            raise
        typer.echo(f"failed: {error.filename}: {error.strerror}; --debug shows where", err=True)
        sys.exit(1)
