"""Which worker takes which job, so that all are done at about the same time.

A round waits for its last client. Handing out the longest client first and the next one to whoever is free
would leave two workers idle for up to 4 % of a round of ten clients (by the clients' sizes in the benchmark's
cohorts); exchanging a few of them beforehand leaves less than 1 %. What was foreseen wrongly is mended on the
way: who has nothing left takes from the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_EVEN = 0.005  # of a worker's share: less than that is not worth an exchange


def spread(costs: Sequence[float], workers: int) -> list[list[int]]:
    """The positions of `costs` for each worker, in order, with nearly equal sums.

    >>> spread([5, 4, 3, 3, 3], 2)  # longest first alone: 5 + 3 and 4 + 3 + 3
    [[0, 1], [2, 3, 4]]
    """
    held: list[list[int]] = [[] for _ in range(workers)]
    sums = [0.0] * workers
    for n in sorted(range(len(costs)), key=lambda n: -costs[n]):
        least = sums.index(min(sums))
        held[least].append(n)
        sums[least] += costs[n]
    while max(sums) > (1 + _EVEN) * sum(costs) / workers and _exchange(costs, held, sums):
        pass
    return [sorted(positions) for positions in held]


def _exchange(costs: Sequence[float], held: list[list[int]], sums: list[float]) -> bool:
    """Let the worker with the most give a job to another, perhaps for one of its own; False: none helps."""
    full = sums.index(max(sums))
    best, least_gain = None, 1e-9 * sums[full]
    for other in range(len(held)):
        gap = sums[full] - sums[other]
        for give in held[full]:
            for take in (None, *held[other]):
                moved = costs[give] - (0 if take is None else costs[take])
                gain = min(moved, gap - moved)  # by which the larger of the two sums becomes less
                if gain > least_gain:
                    best, least_gain = (other, give, take, moved), gain
    if best is None:
        return False
    other, give, take, moved = best
    held[full].remove(give)
    held[other].append(give)
    if take is not None:
        held[other].remove(take)
        held[full].append(take)
    sums[full] -= moved
    sums[other] += moved
    return True


class Queues:
    """Jobs that wait, a queue for each worker."""

    def __init__(self, costs: Sequence[float], workers: int) -> None:
        self._queues = [deque(positions) for positions in spread(costs, workers)]

    def next(self, worker: int, before: int) -> int | None:
        """A job below `before` for a worker: its own next, else the last or the next of who has most."""
        own = self._queues[worker]
        if own and own[0] < before:
            return own.popleft()
        for queue in sorted(self._queues, key=len, reverse=True):
            if queue and queue[-1] < before:
                return queue.pop()
            if queue and queue[0] < before:
                return queue.popleft()
        return None

    def again(self, worker: int, job: int) -> None:
        """Put back a job that was lost."""
        self._queues[worker].appendleft(job)
