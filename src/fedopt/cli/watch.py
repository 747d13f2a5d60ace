"""`fedopt watch`: a live page about runs in progress."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Annotated

import typer

from fedopt.remote.location import local_path


def watch(
    directories: Annotated[
        list[str],
        typer.Argument(help="Runs, comparisons, sweeps, or directories of them.", metavar="RUN"),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Only this machine can reach the default; other addresses, such as "
            "0.0.0.0, need the token that the command prints."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 selects a free one.", min=0, max=65535)] = 0,
    title: Annotated[str | None, typer.Option(help="The page's headline.")] = None,
) -> None:
    """Serve a live page about runs of one task. It updates while they run; Ctrl-C ends it."""
    from fedopt.reports.live import LivePage, LiveServer

    paths = [local_path(directory, "RUN") for directory in directories]
    with LiveServer(LivePage(paths, title), host, port) as server:
        typer.echo(server.url)
        typer.echo("Ctrl-C ends the page. The runs continue.", err=True)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is not an error here
        with suppress(KeyboardInterrupt):
            server.serve_forever()
