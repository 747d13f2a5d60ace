"""Vectors in shared memory."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import small
import torch
from training import train_clients
from worker_pool import Pool

from fedopt.algorithms import Algorithm, ClientResult, Work
from fedopt.algorithms.base import Round
from fedopt.algorithms.state import map_vectors
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


def test_training_in_shared_memory_equals_serial_training(pool: Pool) -> None:
    for algorithm in ("fedavg", "fedadagrad", "scaffold", "fedprox"):
        runs = [small.run(executor, algorithm) for executor in (Serial(), pool(2))]
        assert torch.equal(runs[0].x, runs[1].x), algorithm


def test_result_in_shared_memory_is_valid_until_the_next_result(pool: Pool) -> None:
    """The worker trains the next clients while the first result is in use."""
    problem = build_problem(small.SMALL, resolve(small.SMALL, "fedavg", small.SETTINGS))
    expected = train_clients(Serial(), problem, range(12), 0.5)
    sent = problem.algorithm().sent(problem.algorithm().init(initial_vector(problem)))
    executor = pool(1)
    executor.load(problem, problem.federation(), ())
    jobs = [ClientJob(Round(0, 0.5, 1.0, 12, 40), client) for client in range(12)]
    for (_, vectors), (_, alone) in zip(executor.map(jobs, sent), expected, strict=True):
        time.sleep(0.02)
        assert torch.equal(vectors[0], alone[0])


def test_failed_client_leaves_no_values_in_its_slot(pool: Pool, tmp_path: Path) -> None:
    settings = {"clients_per_round": 24, "client.epochs": 3, "client.lr": 0.5, "rounds": 1}
    expected = small.run(Serial(), settings=settings)
    dying = replace(small.SMALL, prepare=partial(small.dead_half_way, str(tmp_path / "dead"), 7))
    assert torch.equal(small.run(pool(3), settings=settings, task=dying).x, expected.x)
    bad = replace(small.SMALL, prepare=partial(small.overflowing_half_way, str(tmp_path), (1, 5, 20)))
    runs = [small.run(executor, settings=settings, task=bad) for executor in (Serial(), pool(1), pool(3))]
    assert bool(runs[0].x.isfinite().all()) and not torch.equal(runs[0].x, expected.x)
    assert torch.equal(runs[0].x, runs[1].x) and torch.equal(runs[0].x, runs[2].x)


SO_LR = TASKS["so_lr"]
SMALL = {"rounds": 2, "data.clients": 40, "data.limit": 130, "eval.sample": 50}  # 130: a short last batch


class Counted(NamedTuple):
    """The model, and the sum of its absolute changes."""

    x: torch.Tensor
    c: torch.Tensor


def counting(sends: tuple[str, ...]) -> Algorithm:
    """FedAvg with a second vector, which the server sends in the given order."""

    def client(work: Work, *sent: torch.Tensor) -> ClientResult:
        x, c = sent if sends[0] == "x" else sent[::-1]
        x_i = x
        for batch in work.batches():
            x_i = x_i - work.round.eta_l * work.gradient(x_i, batch) * (1 + c)
        return ClientResult((x_i - x,))

    def server(state: Counted, mean: tuple[torch.Tensor, ...], round: Round) -> Counted:
        return Counted(state.x + mean[0], state.c + mean[0].abs())

    return Algorithm(lambda x: Counted(x, torch.zeros_like(x)), client, server, sends=sends)


@pytest.mark.parametrize("where", ["serial", "processes", "vectorised"])
@pytest.mark.parametrize("sends", [("x", "c"), ("c", "x")])
def test_state_with_two_sent_vectors_is_equal_on_every_executor(
    sends: tuple[str, ...], where: str, pool: Pool
) -> None:
    config = resolve(SO_LR, "fedavg", SMALL | {"rounds": 3})
    problem = build_problem(SO_LR, config, partial(counting, sends))
    executor = {"serial": Serial, "processes": lambda: pool(2), "vectorised": Vectorised}[where]()
    states = [states_of(config, problem, one) for one in (Serial(), executor)]
    for expected, actual in zip(*states, strict=True):
        for a, b in zip(expected, actual, strict=True):
            assert torch.equal(a, b) if where != "vectorised" else torch.allclose(a, b, atol=1e-5)
    assert float(states[1][-1].c.abs().sum()) > 0


def states_of(config: Any, problem: Problem, executor: Executor) -> list[Any]:
    """Return the server's state at every step of a run."""
    states: list[Any] = []
    execute(
        PreparedRun(config, problem),
        executor,
        on_step=lambda step: states.append(map_vectors(step.position.state, torch.clone)),
    )
    return states
