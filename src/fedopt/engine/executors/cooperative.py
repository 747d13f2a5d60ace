"""Cooperative threads: functions that pause at a request and continue with its reply.

A client's training stays a plain function, although many clients train at once and their gradients are
computed together. Each function has its own thread and its own state of torch's default generator. Only one
thread runs at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class _Cancelled(BaseException):
    """Ends a function that gets no reply. `except Exception` does not catch it."""


class CooperativeThread(threading.Thread):
    """Runs one function, which pauses in `wait_for_reply`."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.request: Any = None  # the pending request; None when the function has ended
        self._function = function
        self._reply: Any = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._rng_state = torch.get_rng_state()
        self._resumed, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._cancelled = False

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error  # raised again by `result`
        finally:
            self.request = None
            self._paused.release()

    def wait_for_reply(self, request: Any) -> Any:
        """Pause until the request has a reply, and return it. Called inside the function."""
        self.request = request
        self._paused.release()
        self._resumed.acquire()
        if self._cancelled:
            raise _Cancelled
        reply, self._reply = self._reply, None
        return reply

    def resume(self, reply: Any = None) -> None:
        """Start the function, or continue it with a reply, until its next request or its end."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self._rng_state)
        self._reply = reply
        if self.ident is None:
            self.start()
        else:
            self._resumed.release()
        self._paused.acquire()
        self._rng_state = torch.get_rng_state()
        torch.set_rng_state(outside)

    def result(self) -> Any:
        """Return the result of the function, or raise its exception."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> None:
        """End the function where it is paused."""
        self._cancelled = True
        if self.ident is not None:
            self._resumed.release()
            self.join()


def current_thread() -> CooperativeThread | None:
    """Return the cooperative thread that calls this function, if it is one."""
    thread = threading.current_thread()
    return thread if isinstance(thread, CooperativeThread) else None


@contextmanager
def cooperative_threads(functions: Sequence[Callable[[], Any]]) -> Iterator[list[CooperativeThread]]:
    """Create a thread for each function. At the end, cancel all threads and restore torch's generator."""
    outside = torch.get_rng_state()
    threads = [CooperativeThread(function) for function in functions]
    try:
        yield threads
    finally:
        for thread in threads:
            thread.cancel()
        torch.set_rng_state(outside)
