"""The command `fedopt`: the list of commands, and exit codes for errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from fedopt.cli import bench, data, new, reproduce, resume, runs, sweep
from fedopt.cli.options import typed_command
from fedopt.engine.allocation import keep_freed_memory
from fedopt.errors import FedoptError, UserCodeError, UserError
from fedopt.formatting import printable
from fedopt.runs.interrupts import SignalHandler

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated optimization: train, compare and tune algorithms on federated data.",
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
    resume.resume,
    runs.eval,
    runs.export,
    runs.report,
    reproduce.reproduce,
    bench.bench,
    runs.tasks,
    runs.algorithms,
    new.new,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run a command.

    Exit codes: 0 success, 1 failed run, 2 invalid request, 128 + n ended by signal n (130 for Ctrl-C).
    """
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):  # a file name or a locale may not be UTF-8
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with SignalHandler() as signals:
        try:
            _run_command()
        except BaseException:
            if signals.exit_code is None:
                raise
    if signals.exit_code is not None:
        with suppress(OSError):  # the terminal may be gone
            typer.echo(f"interrupted; to resume: {typed_command()}", err=True)
        sys.exit(signals.exit_code)


def _run_command() -> None:
    try:
        app()
    except FedoptError as error:
        if "--debug" in sys.argv:
            raise
        kind = "error" if isinstance(error, UserError) else "failed"
        hint = "; --debug shows the traceback" if isinstance(error, UserCodeError) else ""
        message = "\n".join(map(printable, str(error).split("\n")))
        typer.echo(f"{kind}: {message}{hint}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(0)  # for example `fedopt tasks | head`
    except OSError as error:  # invalid paths and disk errors are reported in one line
        if "--debug" in sys.argv or error.filename is None:
            raise
        typer.echo(
            f"failed: {printable(str(error.filename))}: {error.strerror}; --debug shows where", err=True
        )
        sys.exit(1)
