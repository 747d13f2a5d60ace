"""Which piece of work is waiting, running or done, and which one takes too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from fedopt.engine.executors.ray.pieces import Piece

MAX_DEATHS = 3  # of slots, per piece
STRAGGLER_FACTOR = 3.0  # of the median time
_STRAGGLER_SECONDS = 1.0  # shorter delays do not matter
_MIN_TIMES = 3  # finished pieces before a median is used


class PieceTimes:
    """Seconds per local step of the pieces that finished last."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=101)

    def add(self, seconds: float, steps: int) -> None:
        self._times.append(seconds / max(steps, 1))

    def patience(self, steps: int) -> float | None:
        """Return how many seconds a piece may take, or None if too few pieces have finished."""
        if len(self._times) < _MIN_TIMES:
            return None
        return max(STRAGGLER_FACTOR * median(self._times) * max(steps, 1), _STRAGGLER_SECONDS)


class Running(NamedTuple):
    """A piece that a slot is running."""

    position: int
    started: float  # seconds


class Attempts:
    """The pieces of one round or evaluation. A piece may run on two slots; its first answer counts.

    At most `window` pieces run ahead of the oldest unused answer, so memory does not grow with the cohort.
    """

    def __init__(self, pieces: Sequence[Piece], window: int, times: PieceTimes) -> None:
        self._pieces = pieces
        self._window = window
        self._times = times
        self._waiting = deque(range(len(pieces)))  # a cohort is ordered by size: the largest clients first
        self._running: dict[int, Running] = {}  # by slot
        self._answers: dict[int, Any] = {}
        self._deaths: dict[int, int] = {}
        self._next = 0  # position of the next answer that is used

    def start(self, slot: int, now: float) -> int | None:
        """Choose a piece for an idle slot: the next one, or one that takes too long. Return its position."""
        if self._waiting and self._waiting[0] < self._next + self._window:
            position: int | None = self._waiting.popleft()
        else:
            position = self._straggler(now)
        if position is not None:
            self._running[slot] = Running(position, now)
        return position

    def _straggler(self, now: float) -> int | None:
        positions = [running.position for running in self._running.values()]
        for position, started in sorted(self._running.values(), key=lambda running: running.started):
            patience = self._times.patience(self._pieces[position].steps)
            is_late = patience is not None and now - started > patience
            if is_late and self._is_open(position) and positions.count(position) == 1:
                return position
        return None

    def finish(self, slot: int, answer: Any, now: float) -> None:
        """Record an answer. Later answers to the same piece are ignored."""
        running = self._running.pop(slot)
        self._times.add(now - running.started, self._pieces[running.position].steps)
        if self._is_open(running.position):
            self._answers[running.position] = answer

    def lose(self, slot: int) -> int | None:
        """Record that a slot died. Return its piece if it killed too many slots."""
        position = self._running.pop(slot).position
        if not self._is_open(position):
            return None
        self._deaths[position] = self._deaths.get(position, 0) + 1
        if self._deaths[position] == MAX_DEATHS:
            return position
        if all(running.position != position for running in self._running.values()):
            self._waiting.appendleft(position)
        return None

    def _is_open(self, position: int) -> bool:
        """Return whether a piece has no answer yet."""
        return position >= self._next and position not in self._answers

    def has_answer(self) -> bool:
        """Return whether the next answer in order is there."""
        return self._next in self._answers

    def take(self) -> Any:
        """Return the next answer in order."""
        answer = self._answers.pop(self._next)
        self._next += 1
        return answer
