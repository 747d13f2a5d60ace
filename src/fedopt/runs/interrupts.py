"""Interrupts: Ctrl-C and the signals that end a command."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Delay signals until the block ends, so that the recorded numbers of a round stay complete.

    Only signals that a Python function handles are delayed. A second Ctrl-C is not: the block may be waiting
    for a network. All other signals are delayed, because a program may send several, for example SIGHUP and
    then SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if received.count(signal.SIGINT) > 1:
            received.clear()
            functions[signal.Signals(number)](number, frame)

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    functions = {number: handler for number, handler in handlers.items() if callable(handler)}
    _set_handlers(dict.fromkeys(functions, defer))
    try:
        yield
    finally:
        _set_handlers(functions)
        if received:
            functions[signal.Signals(received[0])](received[0], None)


def _set_handlers(functions: Mapping[signal.Signals, Handler]) -> None:
    """Set handlers while the signals are blocked, so that no signal finds only some of them."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        for number, function in functions.items():
            signal.signal(number, function)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class SignalHandler:
    """Raises KeyboardInterrupt for the first signal. A second Ctrl-C ends all processes at once.

    Signals that are ignored when the command starts, for example by nohup, stay ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None  # the first signal

    def __enter__(self) -> SignalHandler:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in SIGNALS}
            self._before = {n: handler for n, handler in handlers.items() if handler is not signal.SIG_IGN}
        for number in self._before:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int | None:
        """128 plus the number of the signal, as in a shell; None without a signal."""
        return None if self.received is None else 128 + self.received

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            for child in multiprocessing.active_children():
                child.kill()
            os.write(2, b"\nended at once; the same command continues from the newest checkpoint\n")
            os._exit(128 + number)
