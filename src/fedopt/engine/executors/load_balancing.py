"""Assign jobs to workers so that all workers finish at about the same time.

A round waits for its last client. If each free worker took the largest remaining client, two workers would be
idle for up to 4 % of a round of ten clients (computed from the client sizes in the benchmark's cohorts).
Moving or swapping a few jobs beforehand leaves less than 1 %. A worker without jobs takes jobs of the others,
which corrects wrong cost estimates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_TOLERANCE = 0.005  # relative imbalance that is accepted


def balance(costs: Sequence[float], workers: int) -> list[list[int]]:
    """Return the positions of `costs` for each worker, in order, with nearly equal sums.

    >>> balance([5, 4, 3, 3, 3], 2)  # largest first alone: 5 + 3 and 4 + 3 + 3
    [[0, 1], [2, 3, 4]]
    """
    assigned: list[list[int]] = [[] for _ in range(workers)]
    sums = [0.0] * workers
    for job in sorted(range(len(costs)), key=lambda job: -costs[job]):
        worker = sums.index(min(sums))
        assigned[worker].append(job)
        sums[worker] += costs[job]
    while max(sums) > (1 + _TOLERANCE) * sum(costs) / workers and _improve(costs, assigned, sums):
        pass
    return [sorted(jobs) for jobs in assigned]


def _improve(costs: Sequence[float], assigned: list[list[int]], sums: list[float]) -> bool:
    """Move or swap one job of the worker with the largest sum. Return False if nothing helps."""
    largest = sums.index(max(sums))
    best, best_gain = None, 1e-9 * sums[largest]
    for other in range(len(assigned)):
        gap = sums[largest] - sums[other]
        for give in assigned[largest]:
            for take in (None, *assigned[other]):
                moved = costs[give] - (0 if take is None else costs[take])
                gain = min(moved, gap - moved)  # the decrease of the larger of the two sums
                if gain > best_gain:
                    best, best_gain = (other, give, take, moved), gain
    if best is None:
        return False
    other, give, take, moved = best
    assigned[largest].remove(give)
    assigned[other].append(give)
    if take is not None:
        assigned[other].remove(take)
        assigned[largest].append(take)
    sums[largest] -= moved
    sums[other] += moved
    return True


class JobQueues:
    """One queue of waiting jobs for each worker."""

    def __init__(self, costs: Sequence[float], workers: int) -> None:
        self._queues = [deque(jobs) for jobs in balance(costs, workers)]

    def next_job(self, worker: int, before: int) -> int | None:
        """Return a job below `before`: the next one of the worker, otherwise one of the longest queue."""
        own = self._queues[worker]
        if own and own[0] < before:
            return own.popleft()
        for queue in sorted(self._queues, key=len, reverse=True):
            if queue and queue[-1] < before:
                return queue.pop()
            if queue and queue[0] < before:
                return queue.popleft()
        return None

    def put_back(self, worker: int, job: int) -> None:
        """Return a job whose worker died."""
        self._queues[worker].appendleft(job)
