"""Times that workers record."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from speed.engine_rounds import WorkerTimes, read_times, with_timing

from fedopt.algorithms import Round, scaffold
from fedopt.engine.torch_state import single_thread
from fedopt.engine.worker import ClientJob, Worker


def train_client(problem, workload, sent):
    round = Round(0, workload.client_lr, 1.0, 2, 2)
    with single_thread():
        start = time.perf_counter()
        _, vectors = Worker(problem, problem.federation(), ()).run(ClientJob(round, 0), sent, None)
        return vectors, time.perf_counter() - start


@pytest.mark.parametrize("algorithm", [None, partial(scaffold)], ids=["fedavg", "scaffold"])
def test_timing_records_passes_and_does_not_change_results(small_workload, tmp_path, algorithm):
    problem, x = small_workload.problem, small_workload.x
    sent = (x,)
    if algorithm is not None:
        problem, sent = replace(problem, algorithm=algorithm), (x, torch.zeros_like(x))
    expected, _ = train_client(problem, small_workload, sent)
    timed, seconds = train_client(with_timing(problem, tmp_path), small_workload, sent)
    assert all(map(torch.equal, expected, timed))
    times = read_times(tmp_path, 0)
    assert 0 < times.passes < times.clients < seconds
    assert read_times(tmp_path, 1) == WorkerTimes(0.0, 0.0)  # this round was not run
