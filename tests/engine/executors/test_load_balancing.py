"""Jobs are balanced between workers, and every job runs once."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.engine.executors.load_balancing import JobQueues, balance

COSTS = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


def longest_first(costs: list[int], workers: int) -> float:
    """Return the end of the last worker if each free worker takes the longest remaining job."""
    sums = [0] * workers
    for cost in sorted(costs, reverse=True):
        sums[sums.index(min(sums))] += cost
    return max(sums)


@given(costs=COSTS, workers=st.integers(1, 6))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_every_job_is_assigned_and_no_worker_ends_later_than_with_longest_first(
    costs: list[int], workers: int
) -> None:
    shares = balance(costs, workers)
    assert sorted(itertools.chain(*shares)) == list(range(len(costs)))
    assert all(share == sorted(share) for share in shares)
    end = max(sum(costs[n] for n in share) for share in shares)
    assert end <= longest_first(costs, workers)


@pytest.mark.parametrize(
    ("costs", "best"),  # the best of all assignments; longest first ends at 1107 and 947
    [
        ([336, 326, 270, 236, 235, 202, 187, 154, 146, 74], 1083),
        ([352, 197, 196, 177, 172, 164, 155, 152, 150, 102], 909),
    ],
)
def test_two_workers_end_within_one_percent_of_the_best(costs: list[int], best: int) -> None:
    halves = (sum(some) for k in range(11) for some in itertools.combinations(costs, k))
    assert min(max(half, sum(costs) - half) for half in halves) == best
    end = max(sum(costs[n] for n in share) for share in balance(costs, 2))
    assert end <= 1.01 * best < longest_first(costs, 2)


@given(costs=COSTS, workers=st.integers(1, 4), slots=st.integers(1, 8), seed=st.integers(0, 1000))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_every_job_runs_once_with_slow_and_dying_workers(
    costs: list[int], workers: int, slots: int, seed: int
) -> None:
    """Workers finish in any order and some die; results are used in order, with a limited number of slots."""
    random = Random(seed)
    queues, running, done, finished = JobQueues(costs, workers), dict[int, int](), set[int](), list[int]()
    for position in range(len(costs)):
        while position not in done:
            for worker in range(workers):
                if worker not in running:
                    job = queues.next_job(worker, before=position + slots)
                    if job is not None:
                        assert position <= job < position + slots
                        running[worker] = job
            worker = random.choice(sorted(running))  # fails if all workers are idle
            job = running.pop(worker)
            if random.random() < 0.1:
                queues.put_back(worker, job)
            else:
                done.add(job)
                finished.append(job)
    assert sorted(finished) == list(range(len(costs)))


def test_idle_worker_takes_the_last_job_of_the_longest_queue() -> None:
    queues = JobQueues([3, 3, 1, 1, 1, 1], 2)  # 0 2 4 and 1 3 5
    assert [queues.next_job(0, 6) for _ in range(4)] == [0, 2, 4, 5]
    assert [queues.next_job(1, 6) for _ in range(3)] == [1, 3, None]
