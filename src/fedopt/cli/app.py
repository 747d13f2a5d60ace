"""The command `fedopt`: the list of commands, and exit codes for errors."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedopt.cli import data, new, resume, runs, sweep, watch
from fedopt.cli.options import typed_command
from fedopt.cli.streams import StandardStreams
from fedopt.engine.allocation import keep_freed_memory
from fedopt.errors import FedoptError, UserCodeError, UserError
from fedopt.formatting import printable
from fedopt.runs.interrupts import SignalHandler


class CommandGroup(TyperGroup):
    """The commands of this package, and the entry points of the group `fedopt.commands` of all packages.

    Entry points are read only for a list of commands and for a name that is not one of this package.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_entry_points()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self._add_entry_points()
        return super().get_command(ctx, cmd_name)

    def _add_entry_points(self) -> None:
        from importlib.metadata import entry_points

        for point in entry_points(group="fedopt.commands"):
            if point.name in self.commands:
                continue
            try:
                function = point.load()
            except (ImportError, AttributeError) as error:
                raise UserCodeError(
                    f"the command {point.name} of {point.value} cannot be imported: {error}; "
                    "update or uninstall its package"
                ) from error
            single = typer.Typer(add_completion=False)
            single.command(point.name)(function)
            self.commands[point.name] = typer.main.get_command(single)


app = typer.Typer(
    cls=CommandGroup,
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
    watch.watch,
    runs.tasks,
    runs.algorithms,
    new.new,
)
RESUMABLE = ("run", "compare", "sweep", "resume", "reproduce", "data")  # `data get` continues downloads
for command in COMMANDS:
    app.command()(command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run a command.

    Exit codes: 0 success, 1 failed run, 2 invalid request, 128 + n ended by signal n (130 for Ctrl-C, 141 if
    the reader of the output has ended).
    """
    keep_freed_memory()
    with StandardStreams() as streams, SignalHandler() as signals:
        try:
            _run_command()
        except BaseException:
            if signals.exit_code is None and streams.exit_code is None:
                raise
        if signals.exit_code is not None:
            with suppress(KeyboardInterrupt):  # the other end of a pipe may be closed
                typer.echo(f"interrupted; {_describe_rerun()}", err=True)
    exit_code = signals.exit_code or streams.exit_code
    if exit_code is not None:
        sys.exit(exit_code)


def _describe_rerun() -> str:
    """How an interrupted command continues. Commands that only read runs start from the beginning."""
    is_resumable = any(word in RESUMABLE for word in sys.argv[1:3])
    return f"{'to resume' if is_resumable else 'no result; to repeat'}: {typed_command()}"


def _run_command() -> None:
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except FedoptError as error:
        if "--debug" in sys.argv:
            raise
        kind = "error" if isinstance(error, UserError) else "failed"
        hint = "; --debug shows the traceback" if isinstance(error, UserCodeError) else ""
        message = "\n".join(map(printable, str(error).split("\n")))
        typer.echo(f"{kind}: {message}{hint}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:  # invalid paths, disk errors and exhausted resources are reported in one line
        if "--debug" in sys.argv:
            raise
        where = "" if error.filename is None else f"{printable(str(error.filename))}: "
        remedy = "; raise the limit with ulimit -n" if error.errno == errno.EMFILE else ""
        typer.echo(f"failed: {where}{error.strerror or error}{remedy}; --debug shows where", err=True)
        sys.exit(1)
