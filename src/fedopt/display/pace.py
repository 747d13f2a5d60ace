"""The speed of a run, from its recent rounds."""

from __future__ import annotations

from collections import deque

SECONDS, ROUNDS = 120.0, 100  # a rate covers at least both, so that it includes evaluations


class Pace:
    """Rounds per second over the recent rounds.

    A mean over the whole run would be wrong for hours after a pause of the process or a slow start.

    >>> pace = Pace()
    >>> [pace.update(round, seconds) for round, seconds in ((0, 10.0), (1, 14.0), (2, 18.0))]
    [None, 0.25, 0.25]
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()  # rounds and times, at most one per second

    def update(self, round: int, seconds: float) -> float | None:
        """Record that a round has ended. Return the rate; None for the first round."""
        marks = self._marks
        while len(marks) > 1 and seconds - marks[1][1] >= SECONDS and round - marks[1][0] >= ROUNDS:
            marks.popleft()
        if not marks or seconds - marks[-1][1] >= 1:
            marks.append((round, seconds))
        first, start = marks[0]
        return (round - first) / (seconds - start) if round > first and seconds > start else None
