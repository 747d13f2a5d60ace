"""Run `fedopt` commands in this process, and check error messages."""

from __future__ import annotations

import io
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from fedopt.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


class FinishedRun(NamedTuple):
    path: Path
    summary: dict[str, Any]  # the output of --json


class SeededRuns(NamedTuple):
    path: Path
    done: Done


WRITERS = 4
SMALL_SETTINGS = {
    "data.clients": WRITERS,
    "clients_per_round": 2,
    "client.steps": 1,
    "client.batch_size": 4,
    "eval.every": 1,
    "eval.sample": 40,
    "checkpoint.every": 1,
}


def fedopt(*words: str | Path) -> Done:
    """Run `fedopt WORDS...` by calling its `main`. Workers are processes as usual."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = ["fedopt", *map(str, words)]
    with patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Done(code, out.getvalue(), err.getvalue())


def small_command(command: str = "run", *words: str | Path, **changes: Any) -> list[str | Path]:
    """The words of a command on a few writers; client__lr=0.1 stands for --set client.lr=0.1."""
    settings = SMALL_SETTINGS | {key.replace("__", "."): value for key, value in changes.items()}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    executor = [] if command == "sweep" else ["--executor", "serial"]
    return [command, "emnist_cr", *executor, *sets, *words]


def run_small(out: Path, *words: str | Path, rounds: int = 3, **changes: Any) -> Done:
    """`fedopt run --json` on a few writers."""
    return fedopt(*small_command("run", "--json", "--out", out, "--rounds", str(rounds), *words, **changes))


def temporary_files(directory: Path) -> list[Path]:
    """Files that were never finished."""
    return list(directory.rglob("*.tmp"))


def message_lines(err: str) -> list[str]:
    """The lines of stderr without headings, which have the separator " · "."""
    return [line for line in err.splitlines() if " · " not in line]


def refused(done: Done, *words: str, code: int = 2, after_progress: bool = False) -> None:
    """Assert the exit code, an empty stdout, and one line after the heading that contains the words."""
    assert (done.code, done.out) == (code, ""), done
    assert "Traceback" not in done.err
    lines = message_lines(done.err)
    lines = lines[-1:] if after_progress else lines
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: " if code == 2 else "failed: ")
    for word in words:
        assert word in lines[0], lines[0]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Simulate a full disk: this process and its children cannot write more than `size` bytes to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
