"""The speed of a run, from its recent rounds."""

from __future__ import annotations

from collections import deque

MIN_SECONDS, MIN_ROUNDS = 120.0, 100  # of the window of a rate


class Pace:
    """Rounds per second over at least the last 100 rounds and two minutes.

    A mean over the whole run would be wrong for hours after a pause of the process or a slow start. `rounds`
    is a larger window: it must contain the rounds between two evaluations, which take longer.

    >>> pace = Pace()
    >>> [pace.update(round, seconds) for round, seconds in ((0, 10.0), (1, 14.0), (2, 18.0))]
    [None, 0.25, 0.25]
    """

    def __init__(self, rounds: int = MIN_ROUNDS) -> None:
        self._rounds = max(rounds, MIN_ROUNDS)
        self._marks: deque[tuple[int, float]] = deque()  # rounds and times, at most one per second

    def update(self, round: int, seconds: float) -> float | None:
        """Record that a round has ended. Return the rate; None until a second round has taken time."""
        marks = self._marks
        while len(marks) > 1 and seconds - marks[1][1] >= MIN_SECONDS and round - marks[1][0] >= self._rounds:
            marks.popleft()
        if not marks or (round > marks[-1][0] and seconds - marks[-1][1] >= 1):
            marks.append((round, seconds))
        first, start = marks[0]
        return (round - first) / (seconds - start) if round > first and seconds > start else None
