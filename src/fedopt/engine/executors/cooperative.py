"""Functions that take turns: each runs until it asks for something, waits, and goes on with the answer.

So the mathematics of a client stays a plain function, although many clients are under way at once and what
they ask for is computed for all of them together. Each has a thread, of which one runs at a time; and each
has torch's default generator to itself, as if it ran alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class _Abandoned(BaseException):
    """Ends a function that will get no answer; no `except Exception` on the way holds it up."""


class Turn(threading.Thread):
    """One of these functions."""

    def __init__(self, body: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.question: Any = None  # what it waits for; None once it has ended
        self._body = body
        self._answer: Any = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._random = torch.get_rng_state()
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._abandoned = False

    def run(self) -> None:
        try:
            self._result = self._body()
        except BaseException as error:
            self._error = error  # the one who takes the result gets it
        finally:
            self.question = None
            self._paused.release()

    def ask(self, question: Any) -> Any:
        """Called inside the function: the answer, when there is one."""
        self.question = question
        self._paused.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned
        answer, self._answer = self._answer, None
        return answer

    def proceed(self, answer: Any = None) -> None:
        """Let it run to its next question or its end; the first time, from its beginning."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self._random)
        self._answer = answer
        if self.ident is None:
            self.start()
        else:
            self._go.release()
        self._paused.acquire()
        self._random = torch.get_rng_state()
        torch.set_rng_state(outside)

    def result(self) -> Any:
        """What the function returned or raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result

    def abandon(self) -> None:
        """End it where it stands, if it has not ended."""
        self._abandoned = True
        if self.ident is not None:
            self._go.release()
            self.join()


def current() -> Turn | None:
    """The one whose function this is called in."""
    thread = threading.current_thread()
    return thread if isinstance(thread, Turn) else None


@contextmanager
def turns(bodies: Sequence[Callable[[], Any]]) -> Iterator[list[Turn]]:
    """A turn for each; none is left behind, and torch's generator stands where it stood."""
    outside = torch.get_rng_state()
    started = [Turn(body) for body in bodies]
    try:
        yield started
    finally:
        for turn in started:
            turn.abandon()
        torch.set_rng_state(outside)
