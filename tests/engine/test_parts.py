"""A client that works on the part of the model it touches gives the same numbers, to the bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedopt
from conftest import Pool
from fedopt.algorithms import Algorithm, ClientResult, Optimizer, Work
from fedopt.algorithms import fedopt as fedopt_algorithm
from fedopt.algorithms.base import Round, Still
from fedopt.algorithms.optimizers import sgd
from fedopt.algorithms.state import all_finite, mapped
from fedopt.engine.aggregate import BLOCK, BlockedMean
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors.base import Executor, Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.loop import Step
from fedopt.engine.problem import Problem
from fedopt.engine.round import Setting, own, run_round
from fedopt.engine.sampling import uniform
from fedopt.engine.worker import ClientJob, initial_vector
from fedopt.models.sparse_rows import Part
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS
from fedopt.tasks.stackoverflow import touched_words

SO_LR = TASKS["so_lr"]
SMALL = {"rounds": 2, "data.clients": 40, "data.limit": 130, "eval.sample": 50}  # 130: a short last batch


def final(algorithm: str, executor: Executor, plain: bool, **changes: object) -> torch.Tensor:
    config = resolve(SO_LR, algorithm, SMALL | changes)
    problem = build_problem(SO_LR, config)
    return execute(config, replace(problem, touched=None) if plain else problem, executor).x


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("fedavg", {}),
        ("fedavgm", {}),
        ("fedadagrad", {}),
        ("fedyogi", {}),
        ("fedprox", {"client.epochs": 2}),
        ("lookahead", {"client.optimizer": "adam"}),
        ("scaffold", {}),  # its control variates move every coordinate, so it works on the whole
    ],
)
def test_a_client_that_works_on_what_it_touches_gives_the_same_numbers(
    algorithm: str, changes: dict[str, object]
) -> None:
    plain, fast = (final(algorithm, Serial(), way, **changes) for way in (True, False))
    assert torch.equal(plain, fast)


@pytest.mark.parametrize("algorithm", ["fedadagrad", "fedavg"])
def test_parts_come_back_from_workers_as_they_do_serially(algorithm: str, pool: Pool) -> None:
    assert torch.equal(final(algorithm, Serial(), plain=True), final(algorithm, pool(2), plain=False))


@pytest.mark.parametrize("workers", [0, 2])
def test_rounds_in_place_leave_what_others_hold(workers: int, pool: Pool) -> None:
    """FedAvg's server writes the touched rows into x: x_0 and what a callback kept must not follow."""
    config = resolve(SO_LR, "fedavg", SMALL)
    problem = build_problem(SO_LR, config)
    place = pool(workers) if workers else Serial()
    start = initial_vector(problem)
    before = start.clone()
    first = execute(config, problem, place, initial=start).x
    kept = first.clone()
    again = execute(config, problem, place, initial=start).x
    assert torch.equal(start, before) and torch.equal(first, kept) and torch.equal(first, again)
    steps: list[Step] = []
    fedopt.run("so_lr", config=SMALL | {"rounds": 3}, callback=steps.append)
    models = [step.position.state.x for step in steps]
    assert torch.equal(models[0], before) and torch.equal(models[2], first)
    assert not torch.equal(models[2], models[3])


def overflowing(state: Any, mean: tuple[torch.Tensor, ...], round: Round) -> Any:
    return state._replace(x=state.x + (1e38 * mean[0]).mul(1e38))


def test_a_step_that_is_not_finite_changes_no_row() -> None:
    config = resolve(SO_LR, "fedavg", SMALL | {"patience": 5})
    problem = build_problem(SO_LR, config)
    algorithm = problem.algorithm()._replace(server=Still(overflowing))
    executor = Serial()
    executor.load(problem, problem.federation(), ())
    setting = Setting(algorithm, executor, problem.federation().train, uniform, 4, 0, MemoryTable())
    x = initial_vector(problem)
    state, report = run_round(setting, own(setting, algorithm.init(x)), 0, 0.1, 1.0, in_place=True)
    assert torch.equal(state.x, x) and report.clients == 0 and len(report.rejected) == 4


def test_touched_words_are_numbered_without_gaps_and_unknown_ones_stay_unknown() -> None:
    words = np.array([[7, 2, 0], [10, 12, 2]], dtype=np.int32)  # a vocabulary of 10: 12 is beyond it
    rows, (numbered, tags) = touched_words((words, np.zeros((2, 1))), 10)
    assert rows.tolist() == [1, 6, 9]
    assert numbered.tolist() == [[2, 1, 0], [3, 4, 1]]
    assert tags.shape == (2, 1)


def test_texts_without_a_known_word_touch_no_row() -> None:
    rows, (numbered, _) = touched_words((np.array([[0, 0]]), np.zeros((1, 1))), 10)
    assert rows.tolist() == [] and numbered.tolist() == [[0, 0]]


def decaying(x: torch.Tensor, delta: torch.Tensor, eta: float, t: int, state: tuple[()]) -> object:
    return x + eta * (delta - 0.1 * x), state


def decaying_algorithm() -> object:
    return fedopt_algorithm(client=Optimizer(decaying), server=sgd())  # type: ignore[arg-type]


def test_an_optimizer_that_moves_untouched_coordinates_works_on_the_whole() -> None:
    _, end = the_same_without_parts(decaying_algorithm)
    assert (end != final("fedavg", Serial(), plain=False)).float().mean() > 0.9


@given(data=st.data(), clients=st.integers(1, 2 * BLOCK + 3))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_the_mean_of_parts_is_the_mean_of_the_whole_vectors(data: st.DataObject, clients: int) -> None:
    height, width, rest = 6, 3, 2
    whole, parts = BlockedMean(), BlockedMean()
    for _ in range(clients):
        rows = sorted(data.draw(st.sets(st.integers(0, height - 1))))
        part = Part(torch.tensor(rows, dtype=torch.int64), height, width, rest)
        values = torch.tensor(
            data.draw(st.lists(st.floats(-1e3, 1e3, width=32), min_size=part.size, max_size=part.size))
        )
        weight = data.draw(st.integers(1, 50))
        if data.draw(st.booleans()) and clients > 1:
            whole.skip()
            parts.skip()
            continue
        dense = torch.zeros(part.whole)
        part.put(dense, values)
        assert torch.equal(part.take(dense), values)
        whole.add(weight, [dense, 2 * dense])
        parts.add(weight, [values, 2 * values], part)
    expected, found = whole.value(), parts.value()
    assert (expected is None) == (found is None)
    if expected is not None and found is not None:
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_finite_numbers_whose_sum_overflows_are_finite() -> None:
    assert all_finite(torch.full((10,), 3e38))
    assert not all_finite(torch.tensor([1.0, float("inf"), float("-inf")]))
    assert not all_finite(torch.tensor([float("nan"), 1.0]))


# -- servers that leave coordinates alone


def halving(x: torch.Tensor, delta: torch.Tensor, eta: float, t: int, state: tuple[()]) -> object:
    return 0.5 * x + eta * delta, state


def halving_server(state: Any, mean: tuple[torch.Tensor, ...], round: Round) -> Any:
    return state._replace(x=0.5 * state.x + round.eta * mean[0])


def the_same_without_parts(build: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """x_0 and the end of a run by an algorithm, which must not depend on whether clients work on parts."""
    config = resolve(SO_LR, "fedavg", SMALL)
    problem = build_problem(SO_LR, config, build)
    fast, plain = (execute(config, one, Serial()).x for one in (problem, replace(problem, touched=None)))
    assert torch.equal(fast, plain)
    return initial_vector(problem), fast


@pytest.mark.parametrize(
    "build",
    [
        lambda: fedopt_algorithm(sgd(), Optimizer(halving)),  # type: ignore[arg-type]
        lambda: fedopt_algorithm(sgd(), sgd()._replace(update=halving)),
        lambda: fedopt_algorithm(sgd(), sgd())._replace(server=halving_server),
    ],
)
def test_a_server_that_moves_untouched_coordinates_gets_them_however_it_was_made(build: Any) -> None:
    start, end = the_same_without_parts(build)
    assert (end == 0.25 * start).float().mean() > 0.5, "two rounds halve what nobody touches"


@pytest.mark.parametrize(
    "build",
    [
        lambda: fedopt_algorithm(sgd()._replace(update=decaying), sgd()),
        lambda: fedopt_algorithm(sgd(), sgd())._replace(client=decaying_client),
    ],
)
def test_a_client_that_moves_untouched_coordinates_gets_them_however_it_was_made(build: Any) -> None:
    start, end = the_same_without_parts(build)
    assert (end != start).float().mean() > 0.9


def decaying_client(work: Work, x: torch.Tensor) -> ClientResult:
    for batch in work.batches():
        work.gradient(x, batch)
    return ClientResult((-0.1 * x,))


class Counted(NamedTuple):
    """x, and how far the rows have moved in all."""

    x: torch.Tensor
    c: torch.Tensor


def counting(sends: tuple[str, ...]) -> Algorithm:
    """FedAvg with a second vector on the server, which clients are sent in one order or the other."""

    def client(work: Work, *sent: torch.Tensor) -> ClientResult:
        x, c = sent if sends[0] == "x" else sent[::-1]
        x_i = x
        for batch in work.batches():
            x_i = x_i - work.round.eta_l * work.gradient(x_i, batch) * (1 + c)
        return ClientResult((x_i - x,))

    def server(state: Counted, mean: tuple[torch.Tensor, ...], round: Round) -> Counted:
        return Counted(state.x + mean[0], state.c + mean[0].abs())

    return Algorithm(lambda x: Counted(x, torch.zeros_like(x)), Still(client), Still(server), sends=sends)


@pytest.mark.parametrize("where", ["serial", "processes", "vectorised"])
@pytest.mark.parametrize("sends", [("x", "c"), ("c", "x")])
def test_every_vector_of_a_still_servers_state_is_its_own_on_every_executor(
    sends: tuple[str, ...], where: str, pool: Pool
) -> None:
    config = resolve(SO_LR, "fedavg", SMALL | {"rounds": 3})
    problem = build_problem(SO_LR, config, partial(counting, sends))
    whole = replace(problem, touched=None)
    place = {"serial": Serial, "processes": lambda: pool(2), "vectorised": Vectorised}[where]()
    states = [states_of(config, *pair) for pair in ((whole, Serial()), (problem, place))]
    for expected, found in zip(*states, strict=True):
        for a, b in zip(expected, found, strict=True):
            assert torch.equal(a, b) if where != "vectorised" else torch.allclose(a, b, atol=1e-5)
    assert float(states[1][-1].c.abs().sum()) > 0


def states_of(config: Any, problem: Problem, executor: Executor) -> list[Any]:
    """The server's state at every step of a run."""
    states: list[Any] = []
    execute(
        config,
        problem,
        executor,
        on_step=lambda step: states.append(mapped(step.position.state, torch.clone)),
    )
    return states


def test_a_round_changes_the_state_it_is_given_only_if_it_may() -> None:
    config = resolve(SO_LR, "fedavg", SMALL)
    problem = build_problem(SO_LR, config)
    algorithm, executor = problem.algorithm(), Serial()
    executor.load(problem, problem.federation(), ())
    setting = Setting(algorithm, executor, problem.federation().train, uniform, 4, 0, MemoryTable())
    x = initial_vector(problem)
    state, before = algorithm.init(x), x.clone()
    after, _ = run_round(setting, state, 0, 0.1, 1.0)
    assert torch.equal(x, before) and not torch.equal(after.x, before)
    mine = own(setting, state)
    same, _ = run_round(setting, mine, 0, 0.1, 1.0, in_place=True)
    assert same.x is mine.x and torch.equal(same.x, after.x) and torch.equal(x, before)


def test_what_workers_see_is_sent_without_a_copy(pool: Pool) -> None:
    problem = build_problem(SO_LR, resolve(SO_LR, "fedavg", SMALL))
    executor = pool(1)
    executor.load(problem, problem.federation(), ())
    (x,) = executor.share((initial_vector(problem),))
    version = x._version
    jobs = [ClientJob(Round(0, 0.1, 1.0, 1, 1), 0)]
    first = [vectors[0].clone() for _, vectors in executor.map(jobs, (x,))]
    assert x._version == version, "nothing was written"
    x.zero_()
    second = [vectors[0].clone() for _, vectors in executor.map(jobs, (x,))]
    assert not torch.equal(first[0], second[0]), "the worker sees what is changed here"
