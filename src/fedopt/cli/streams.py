"""Standard output and standard error of a command that behave like those of other Unix programs.

A closed pipe, as in `fedopt tasks | head -1`, ends the command quietly. A full device is an error of one
line. Text that the terminal cannot represent is replaced.
"""

from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from fedopt.errors import DiskError

_REPLACEMENT = "fedopt.replace"


class OutputClosed(KeyboardInterrupt):
    """The reader of the output has ended. A run that is in progress is interrupted like by Ctrl-C."""


class StandardStreams:
    """Replaces `sys.stdout` and `sys.stderr` inside a `with` block."""

    def __init__(self) -> None:
        self.exit_code: int | None = None  # after the reader of a pipe has ended

    def __enter__(self) -> StandardStreams:
        _open_missing_descriptors()
        self._before = sys.stdout, sys.stderr
        for stream in self._before:
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors=_REPLACEMENT)
        sys.stdout = _Stream(sys.stdout, self._handle_output_error)
        sys.stderr = _Stream(sys.stderr, self._handle_message_error)
        return self

    def __exit__(self, *error: object) -> None:
        sys.stdout, sys.stderr = self._before

    def _handle_output_error(self, error: OSError) -> None:
        self._end_if_closed(error)
        raise DiskError(f"cannot write to standard output: {error.strerror}") from error

    def _handle_message_error(self, error: OSError) -> None:
        self._end_if_closed(error)  # other errors lose messages only

    def _end_if_closed(self, error: OSError) -> None:
        if error.errno == errno.EPIPE:
            self.exit_code = 128 + signal.SIGPIPE  # as in a shell
            raise OutputClosed from error


class _Stream:
    """A text stream that passes errors to `handle`, the first one again with every later write."""

    def __init__(self, stream: TextIO, handle: Callable[[OSError], None]) -> None:
        self._stream, self._handle = stream, handle
        self._error: OSError | None = None

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, operation: Callable[[], object]) -> None:
        if self._error is None:
            try:
                operation()
                return
            except OSError as error:
                self._error = error
            with suppress(OSError, ValueError):  # the interpreter flushes the stream again when it ends
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, self._stream.fileno())
                os.close(nothing)
        self._handle(self._error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_missing_descriptors() -> None:
    """Open the null device for standard streams that are closed; other files would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write file names that are not valid text as the bytes they are, and other characters as "?"."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    is_name = all("\udc80" <= character <= "\udcff" for character in text)
    return (os.fsencode(text) if is_name else "?" * len(text)), error.end


codecs.register_error(_REPLACEMENT, _replace)
