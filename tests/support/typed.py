"""The command as a user types it, in this process, and what a mistake must look like."""

from __future__ import annotations

import io
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from fedopt.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


def fedopt(*words: str | Path) -> Done:
    """`fedopt WORDS...` by its own `main`, which is quick; workers are processes all the same."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = ["fedopt", *map(str, words)]
    with patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Done(code, out.getvalue(), err.getvalue())


def refused(done: Done, *words: str, code: int = 2, after_progress: bool = False) -> None:
    """Nothing on stdout, one line on stderr that holds the words, and the right exit code."""
    assert (done.code, done.out) == (code, ""), done
    assert "Traceback" not in done.err
    lines = done.err.splitlines()[-1:] if after_progress else done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: " if code == 2 else "failed: ")
    for word in words:
        assert word in lines[0], lines[0]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """As on a full disk: this process and those it starts cannot write more than `size` bytes to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
