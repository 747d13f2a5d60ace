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
    """When the last worker is done if the longest job that is left goes to whoever is free."""
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
    ends = max(sum(costs[n] for n in share) for share in shares)
    assert ends <= longest_first(costs, workers)


@pytest.mark.parametrize(
    ("costs", "best"),  # the best by trying all ways; longest first ends at 1107 and 947
    [
        ([336, 326, 270, 236, 235, 202, 187, 154, 146, 74], 1083),
        ([352, 197, 196, 177, 172, 164, 155, 152, 150, 102], 909),
    ],
)
def test_two_workers_end_within_one_percent_of_the_best(costs: list[int], best: int) -> None:
    halves = (sum(some) for k in range(11) for some in itertools.combinations(costs, k))
    assert min(max(half, sum(costs) - half) for half in halves) == best
    ends = max(sum(costs[n] for n in share) for share in balance(costs, 2))
    assert ends <= 1.01 * best < longest_first(costs, 2)


@given(costs=COSTS, workers=st.integers(1, 4), slots=st.integers(1, 8), seed=st.integers(0, 1000))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_every_job_runs_once_with_slow_and_dying_workers(
    costs: list[int], workers: int, slots: int, seed: int
) -> None:
    """Workers end in any order, some die; results leave in order through so many slots."""
    random = Random(seed)
    queues, on, done, ran = JobQueues(costs, workers), dict[int, int](), set[int](), list[int]()
    for position in range(len(costs)):
        while position not in done:
            for worker in range(workers):
                if worker not in on:
                    job = queues.next_job(worker, before=position + slots)
                    if job is not None:
                        assert position <= job < position + slots
                        on[worker] = job
            worker = random.choice(sorted(on))  # fails if nobody has work
            job = on.pop(worker)
            if random.random() < 0.1:
                queues.put_back(worker, job)
            else:
                done.add(job)
                ran.append(job)
    assert sorted(ran) == list(range(len(costs)))


def test_idle_worker_takes_the_last_job_of_the_longest_queue() -> None:
    queues = JobQueues([3, 3, 1, 1, 1, 1], 2)  # 0 2 4 and 1 3 5
    assert [queues.next_job(0, 6) for _ in range(4)] == [0, 2, 4, 5]
    assert [queues.next_job(1, 6) for _ in range(3)] == [1, 3, None]
