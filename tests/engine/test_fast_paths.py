"""Fast paths give the results of the algorithms' own functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import pytest
import small
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_clients import SETTINGS, make_task
from small import run_round
from torch import nn
from training import CASES, assert_same, task_problem, train_clients
from worker_pool import Pool

import fedopt
from fedopt.algorithms import (
    OPTIMIZERS,
    ClientResult,
    Optimizer,
    Vector,
    Work,
    adam,
    scaffold,
    sgd,
)
from fedopt.algorithms import fedopt as fedopt_algorithm
from fedopt.algorithms.base import Round, declares
from fedopt.algorithms.fedopt import FedOptClient
from fedopt.algorithms.fedprox import FedProxClient
from fedopt.algorithms.scaffold import ScaffoldClient
from fedopt.engine import worker
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.shared_vectors import SharedVectors
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.fast_paths import accepts_unequal_steps, trains_sparse_rows
from fedopt.engine.initial_model import initial_model, initial_vector
from fedopt.engine.loop import Step, TrainingSetup
from fedopt.engine.problem import Problem
from fedopt.engine.sampling import uniform
from fedopt.engine.worker import ClientJob, Worker
from fedopt.errors import WorkerError
from fedopt.models.linear import TagRegression
from fedopt.runs.build_problem import build_problem
from fedopt.runs.execute import execute
from fedopt.runs.prepare import PreparedRun, RunRequest
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


def _clients(case: str) -> tuple[int, ...]:
    return (1, 2) if "cifar" in case else (0, 1, 2)


def plain_sgd_client(work: Work, x: Vector) -> ClientResult:
    """Algorithm 1's client with SGD, without steps in place."""
    x_i = x
    for b in work.batches():
        x_i = torch.add(x_i, work.gradient(x_i, b), alpha=-work.round.eta_l)
    return ClientResult((x_i - x,))


plain_sgd_client.sparse = True  # type: ignore[attr-defined]  # x_i moves where there is a gradient


def plain_scaffold_client(option: str, work: Work, x: Vector, c: Vector) -> ClientResult:
    """SCAFFOLD's client, without steps in place."""
    (c_i,) = work.kept_or(c)
    eta_l, x_i = work.round.eta_l, x
    for b in work.batches():
        x_i = torch.add(x_i, work.gradient(x_i, b) + (c - c_i), alpha=-eta_l)
    c_plus = work.full_gradient(x) if option == "I" else c_i - c + (x - x_i) / (work.steps * eta_l)
    return ClientResult((x_i - x, c_plus - c_i), keeps=(c_plus,))


def plain_prox_client(work: Work, x: Vector) -> ClientResult:
    """FedProx's client with SGD and mu = 0.5, without steps in place."""
    x_i = x
    for b in work.batches():
        g = work.gradient(x_i, b) + 0.5 * (x_i - x)
        x_i = torch.add(x_i, g, alpha=-work.round.eta_l)
    return ClientResult((x_i - x,))


def with_client(problem: Problem, client: Any) -> Problem:
    algorithm = problem.algorithm()._replace(client=client)
    return replace(problem, algorithm=lambda: algorithm)


@pytest.fixture
def plain_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense layers get their gradients from autograd."""
    monkeypatch.setattr(worker, "self_updating_layers", lambda model: [])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("plain_layers")
def test_steps_in_place_equal_plain_steps_to_the_bit(case: str) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, double=False, **settings)
    expected = train_clients(Serial(), with_client(problem, plain_sgd_client), _clients(case), lr)
    actual = train_clients(Serial(), problem, _clients(case), lr)
    assert_same(expected, actual, 0.0)
    assert float(actual[0][1][0].abs().max()) > 0


def assert_same_scaffold(problem: Problem, option: str, client: int, lr: float) -> None:
    """Compare SCAFFOLD's client with the plain one, without and with a kept c_i."""
    problem = replace(problem, algorithm=lambda: scaffold(option=option))  # type: ignore[arg-type]
    x = initial_vector(problem)
    c, c_i = (torch.linspace(-high, high, len(x)) for high in (0.01, 0.02))
    results = []
    for one in (with_client(problem, partial(plain_scaffold_client, option)), problem):
        trainer = Worker(one, one.federation(), ())
        job = ClientJob(Round(1, lr, 1.0, 2, 40), client)
        results += [trainer.run(job, (x, c), kept) for kept in (None, (c_i,))]
    assert all(report.finite for report, _ in results)  # vectors that are not finite are not compared
    assert_same(results[:2], results[2:], 0.0)
    assert not torch.equal(results[2][1][0], results[3][1][0])  # c - c_i changes the steps


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("case", CASES)
def test_scaffold_equals_plain_steps_to_the_bit(case: str, option: str) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, "scaffold", double=False, **settings)
    assert_same_scaffold(problem, option, _clients(case)[0], lr)


def test_fedprox_equals_plain_steps_to_the_bit() -> None:
    problem = build_problem(
        small.SMALL, resolve(small.SMALL, "fedprox", small.SETTINGS | {"client.mu": 0.5, "client.epochs": 2})
    )
    expected = train_clients(Serial(), with_client(problem, plain_prox_client), range(4), 0.1)
    assert_same(expected, train_clients(Serial(), problem, range(4), 0.1), 0.0)


@pytest.mark.parametrize("case", CASES)
def test_self_updating_layers_differ_only_by_rounding(case: str) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, double=False, **settings)
    actual = train_clients(Serial(), problem, _clients(case), lr)
    expected = train_clients(Serial(), with_client(problem, plain_sgd_client), _clients(case), lr)
    assert_same(expected, actual, 3e-5)


class _UnusedParameters(nn.Module):
    """Parameters that some batches do not use, and gradients with transposed memory layout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.short = nn.Linear(small.FEATURES, 4), nn.Linear(small.FEATURES, 4)
        self.unused, self.transposed = (
            nn.Parameter(torch.ones(3)),
            nn.Parameter(torch.rand(4, small.FEATURES)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h: torch.Tensor = self.layer(x) + x @ self.transposed.t()
        return h + self.short(x) if len(x) < 8 else h


def test_parameters_without_gradient_stay_unchanged() -> None:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | {"client.epochs": 2})
    problem = replace(build_problem(small.SMALL, config), model=_UnusedParameters)
    actual = train_clients(Serial(), problem, range(4), 0.5)
    expected = train_clients(Serial(), with_client(problem, plain_sgd_client), range(4), 0.5)
    assert_same(expected, actual, 0.0)


def test_scaffold_corrects_parameters_without_gradient() -> None:
    """Their gradient is zero, so the step is eta_l (c_i - c)."""
    config = resolve(small.SMALL, "scaffold", small.SETTINGS | {"client.epochs": 2})
    problem = replace(build_problem(small.SMALL, config), model=_UnusedParameters)
    assert_same_scaffold(problem, "II", 0, 0.5)


def test_descend_overwrites_only_its_own_vectors() -> None:
    """The received x, and a copy that the client makes before the first step, stay as they are."""
    problem = build_problem(small.SMALL, resolve(small.SMALL, "fedavg", small.SETTINGS))
    seen: list[torch.Tensor] = []

    def client(work: Work, x: Vector) -> ClientResult:
        mine = x.clone()
        x_i = mine
        for b in work.batches():
            x_i = work.descend(x_i, b, 0.1)
        seen.extend((x.clone(), mine.clone(), x_i.clone()))
        return ClientResult((work.delta(x_i, x),))

    ((_, (delta,)),) = train_clients(Serial(), with_client(problem, client), [0], 0.1)
    x, mine, x_i = seen
    assert torch.equal(x, initial_vector(problem)) and torch.equal(x, mine)
    assert torch.equal(x_i - x, delta) and float(delta.abs().max()) > 0


class _OwnClient(FedOptClient):
    """A subclass, which can compute anything."""


class _OwnScaffoldClient(ScaffoldClient):
    """A subclass, which can compute anything."""


def test_declarations_belong_to_exactly_one_client() -> None:
    def own_client(work: Work, x: Vector) -> ClientResult:
        raise AssertionError("never called")

    halved = sgd()._replace(update=lambda x, delta, eta, t, state: (x + eta / 2 * delta, state))
    declared = {
        FedOptClient(sgd()): (True, True),
        FedOptClient(adam()): (True, True),
        FedProxClient(sgd(), 0.1): (True, True),
        ScaffoldClient("II"): (True, False),
        FedOptClient(halved): (False, False),
        _OwnClient(sgd()): (False, False),
        _OwnScaffoldClient("II"): (False, False),
        own_client: (False, False),
    }
    for client, expected in declared.items():
        assert (declares(client, "coordinate_wise"), declares(client, "sparse")) == expected


SO_LR = TASKS["so_lr"]
SMALL = {"rounds": 2, "data.clients": 40, "data.limit": 130, "eval.sample": 50}  # 130: a short last batch


def final_x(algorithm: str, executor: Executor, dense: bool, **changes: object) -> torch.Tensor:
    config = resolve(SO_LR, algorithm, SMALL | changes)
    problem = build_problem(SO_LR, config)
    return execute(PreparedRun(config, replace(problem, touched=None) if dense else problem), executor).x


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("fedavg", {}),
        ("fedavgm", {}),
        ("fedadagrad", {}),
        ("fedyogi", {}),
        ("fedprox", {"client.epochs": 2}),
        ("lookahead", {"client.optimizer": "adam"}),
        ("scaffold", {}),  # trains all rows: its control variates change every coordinate
    ],
)
def test_client_on_sparse_rows_equals_dense_client(algorithm: str, changes: dict[str, object]) -> None:
    expected, actual = (final_x(algorithm, Serial(), dense, **changes) for dense in (True, False))
    assert torch.equal(expected, actual)


@pytest.mark.parametrize("algorithm", ["fedadagrad", "fedavg"])
def test_sparse_rows_from_worker_processes_equal_dense_rows(algorithm: str, pool: Pool) -> None:
    assert torch.equal(final_x(algorithm, Serial(), dense=True), final_x(algorithm, pool(2), dense=False))


@pytest.mark.parametrize("workers", [0, 2])
def test_updates_in_place_do_not_change_earlier_vectors(workers: int, pool: Pool) -> None:
    """Rounds must not change x_0 or the vectors that a callback has received."""
    config = resolve(SO_LR, "fedavg", SMALL)
    problem = build_problem(SO_LR, config)
    executor = pool(workers) if workers else Serial()
    start_model = initial_model(problem)
    start = start_model.x
    before = start.clone()
    first = execute(PreparedRun(config, problem, initial=start_model), executor).x
    copy = first.clone()
    again = execute(PreparedRun(config, problem, initial=start_model), executor).x
    assert torch.equal(start, before) and torch.equal(first, copy) and torch.equal(first, again)
    steps: list[Step] = []
    fedopt.run("so_lr", config=SMALL | {"rounds": 3}, callback=steps.append)
    models = [step.position.state.x for step in steps]
    assert torch.equal(models[0], before) and torch.equal(models[2], first)
    assert not torch.equal(models[2], models[3])


def test_non_finite_sparse_step_changes_no_row() -> None:
    config = resolve(SO_LR, "fedavg", SMALL | {"patience": 5})
    problem = build_problem(SO_LR, config)
    algorithm = problem.algorithm()
    executor = Serial()
    executor.load(problem, problem.federation(), ())
    setup = TrainingSetup(algorithm, executor, problem.federation().train, uniform, 4, 0, MemoryTable())
    x = initial_vector(problem)
    state, report = run_round(setup, algorithm.init(x.clone()), 0, 100.0, 3e38)
    assert torch.equal(state.x, x) and report.clients == 0 and len(report.rejected) == 4


def decaying(x: torch.Tensor, delta: torch.Tensor, eta: float, t: int, state: tuple[()]) -> object:
    return x + eta * (delta - 0.1 * x), state


def decaying_algorithm() -> object:
    return fedopt_algorithm(client=Optimizer(decaying), server=sgd())  # type: ignore[arg-type]


def test_own_client_optimizer_trains_all_rows() -> None:
    _, end = run_with_and_without_sparse_rows(decaying_algorithm)
    assert (end != final_x("fedavg", Serial(), dense=False)).float().mean() > 0.9


def halving(x: torch.Tensor, delta: torch.Tensor, eta: float, t: int, state: tuple[()]) -> object:
    return 0.5 * x + eta * delta, state


def halving_server(state: Any, mean: tuple[torch.Tensor, ...], round: Round) -> Any:
    return state._replace(x=0.5 * state.x + round.eta * mean[0])


def run_with_and_without_sparse_rows(build: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x_0 and the final x, which must not depend on sparse rows."""
    config = resolve(SO_LR, "fedavg", SMALL)
    problem = build_problem(SO_LR, config, build)
    actual, dense = (
        execute(PreparedRun(config, one), Serial()).x for one in (problem, replace(problem, touched=None))
    )
    assert torch.equal(actual, dense)
    return initial_vector(problem), actual


@pytest.mark.parametrize(
    "build",
    [
        lambda: fedopt_algorithm(sgd(), Optimizer(halving)),  # type: ignore[arg-type]
        lambda: fedopt_algorithm(sgd(), sgd()._replace(update=halving)),
        lambda: fedopt_algorithm(sgd(), sgd())._replace(server=halving_server),
    ],
)
def test_own_server_updates_all_rows(build: Any) -> None:
    start, end = run_with_and_without_sparse_rows(build)
    assert (end == 0.25 * start).float().mean() > 0.5, "two rounds halve the other rows twice"


@pytest.mark.parametrize(
    "build",
    [
        lambda: fedopt_algorithm(sgd()._replace(update=decaying), sgd()),
        lambda: fedopt_algorithm(sgd(), sgd())._replace(client=decaying_client),
    ],
)
def test_own_client_trains_all_rows(build: Any) -> None:
    start, end = run_with_and_without_sparse_rows(build)
    assert (end != start).float().mean() > 0.9


def decaying_client(work: Work, x: torch.Tensor) -> ClientResult:
    for batch in work.batches():
        work.gradient(x, batch)
    return ClientResult((-0.1 * x,))


def squared_kernel(model: nn.Module) -> torch.Tensor:
    return 1e-3 * model.kernel.square().sum()


@pytest.mark.parametrize("algorithm", ["fedavg", "fedyogi"])
def test_penalty_changes_rows_that_no_client_touches(algorithm: str) -> None:
    config = resolve(SO_LR, algorithm, SMALL)
    problem = replace(build_problem(SO_LR, config), penalty=squared_kernel)
    actual, dense = (
        execute(PreparedRun(config, one), Serial()).x for one in (problem, replace(problem, touched=None))
    )
    assert torch.equal(actual, dense)
    assert (actual != initial_vector(problem)).float().mean() > 0.99


def decayed_tags() -> nn.Module:
    """A model with weight decay as a gradient hook, which changes rows that no client touches."""
    model = TagRegression()
    model.kernel.register_hook(lambda gradient: gradient + 1e-3)
    return model


def test_gradient_hooks_change_rows_that_no_client_touches() -> None:
    config = resolve(SO_LR, "fedavg", SMALL)
    problem = replace(build_problem(SO_LR, config), model=decayed_tags)
    actual, dense = (
        execute(PreparedRun(config, one), Serial()).x for one in (problem, replace(problem, touched=None))
    )
    assert torch.equal(actual, dense)
    assert (actual != initial_vector(problem)).float().mean() > 0.99


def clipped_steps(clients: Sequence[int], lr: float, steps: int) -> list[torch.Tensor]:
    """Delta_i of full-batch SGD with clipped gradients, by hand with torch.optim."""
    problem = build_problem(small.SMALL, resolve(small.SMALL, "fedavg", small.SETTINGS))
    x = initial_vector(replace(problem, model=small.clipped_network))
    deltas = []
    for client in clients:
        inputs, labels, _ = map(torch.from_numpy, problem.federation().train.client(client))
        module = small.network(dropout=0.0)
        nn.utils.vector_to_parameters(x.clone(), module.parameters())
        optimizer = torch.optim.SGD(module.parameters(), lr)
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), labels).backward()
            weight = next(module.parameters())
            weight.grad.clamp_(-small.CLIP, small.CLIP)
            optimizer.step()
        deltas.append(nn.utils.parameters_to_vector(module.parameters()).detach() - x)
    return deltas


@pytest.mark.parametrize("name", ["serial", "processes", "vectorised"])
def test_gradient_hooks_of_a_model_function_work_on_every_executor(name: str, pool: Pool) -> None:
    settings = small.SETTINGS | {"client.batch_size": 64, "client.epochs": 3}
    problem = build_problem(small.SMALL, resolve(small.SMALL, "fedavg", settings))
    problem = replace(problem, model=small.clipped_network)
    executor = {"serial": Serial, "processes": lambda: pool(2), "vectorised": Vectorised}[name]()
    trained = train_clients(executor, problem, range(3), 0.5)
    for (_, (delta,)), expected in zip(trained, clipped_steps(range(3), 0.5, 3), strict=True):
        torch.testing.assert_close(delta, expected, rtol=1e-4, atol=1e-6)
    assert ("gradient hooks" in executor.fallback_reason) == (name == "vectorised")


@pytest.mark.parametrize("name", OPTIMIZERS)
@given(data=st.data(), steps=st.integers(1, 5))
@settings(deadline=None, derandomize=True, max_examples=25)
def test_optimizers_are_coordinate_wise_and_leave_untouched_coordinates_unchanged(
    name: str, data: st.DataObject, steps: int
) -> None:
    optimizer = OPTIMIZERS[name]()
    touched = torch.tensor(data.draw(st.lists(st.booleans(), min_size=7, max_size=7)))
    values = st.lists(st.floats(-4, 4, width=32, allow_subnormal=False), min_size=7, max_size=7)
    start = torch.tensor(data.draw(values))
    x, state = start, optimizer.init(start)
    short, short_state = start[touched], optimizer.init(start[touched])
    for t in range(steps):
        delta = torch.tensor(data.draw(values)) * touched
        x, state = optimizer.update(x, delta, 0.5, t, state)
        short, short_state = optimizer.update(short, delta[touched], 0.5, t, short_state)
    assert torch.equal(x[touched], short)
    assert torch.equal(x[~touched], start[~touched])
    assert all(torch.equal(a[touched], b) for a, b in zip(state, short_state, strict=True))


def test_wrapped_optimizer_is_not_an_optimizer_of_the_package() -> None:
    problem = build_problem(SO_LR, resolve(SO_LR, "fedavg", SMALL))
    plain = adam()

    @wraps(plain.update)
    def wrapped(*arguments: Any) -> Any:
        return plain.update(*arguments)

    for optimizer, expected in ((plain, True), (plain._replace(update=wrapped), False)):
        algorithm = fedopt_algorithm(optimizer, sgd())
        assert trains_sparse_rows(algorithm, problem, TagRegression()) is expected


def test_a_stackable_client_may_receive_three_vectors() -> None:
    def client(work: Work, x: Vector, a: Vector, b: Vector) -> ClientResult:
        x_i = x
        for batch in work.batches():
            x_i = work.descend(x_i, batch, work.round.eta_l)
        return ClientResult((x_i - x + a * b,))

    algorithm = fedopt_algorithm(sgd(), sgd())._replace(client=client, sends=("x", "a", "b"))
    assert accepts_unequal_steps(algorithm)


def _two_trajectories(work: Work, x: Vector) -> ClientResult:
    """Two models whose steps alternate, with rates eta_l and 2 eta_l."""
    x_i = y_i = x
    for b in work.batches():
        x_i = work.descend(x_i, b, work.round.eta_l)
        y_i = work.descend(y_i, b, 2 * work.round.eta_l)
    return ClientResult((x_i - x,), keeps=(y_i,))


def _one_after_the_other(work: Work, x: Vector) -> ClientResult:
    x_i = y_i = x
    batches = list(work.batches())
    for b in batches:
        x_i = work.descend(x_i, b, work.round.eta_l)
    delta = work.delta(x_i, x)
    for b in batches:
        y_i = work.descend(y_i, b, 2 * work.round.eta_l)
    return ClientResult((delta,), keeps=(y_i,))


def _keeps_its_model(work: Work, x: Vector) -> ClientResult:
    """The vector that `descend` returned is not the first of the result."""
    y_i = x
    for b in work.batches():
        y_i = work.descend(y_i, b, 2 * work.round.eta_l)
    return ClientResult((0.5 * (y_i - x),), keeps=(y_i,))


@pytest.mark.parametrize("client", [_two_trajectories, _one_after_the_other, _keeps_its_model])
@pytest.mark.parametrize("shares", [False, True])
def test_a_client_may_descend_from_several_vectors(client: Any, shares: bool) -> None:
    """Also if the first vector of the result has a place in shared memory, as in worker processes."""
    problem = RunRequest(make_task(), "fedavg", SETTINGS).prepare().problem
    plain = {}
    for rate in (0.1, 0.2):
        ((_, (plain[rate],)),) = train_clients(Serial(), with_client(problem, plain_sgd_client), [0], rate)
    algorithm = problem.algorithm()._replace(client=client, keeps=("y_i",))
    problem = replace(problem, algorithm=lambda: algorithm)
    memory, x = SharedVectors(2, len(plain[0.1])), initial_vector(problem)
    trainer = Worker(problem, problem.federation(), ())
    job = ClientJob(Round(0, 0.1, 1.0, 1, 6), 0)
    _, vectors = trainer.run(job, (x,), None, memory[0] if shares else None)
    memory.write(0, vectors)
    expected = plain[0.2] / 2 if client is _keeps_its_model else plain[0.1]
    torch.testing.assert_close(memory[0], expected)
    torch.testing.assert_close(memory[1], x + plain[0.2])


def _averages_its_models(work: Work, x: Vector) -> ClientResult:
    models = [x]
    for b in work.batches():
        models.append(work.descend(models[-1], b, work.round.eta_l))
    return ClientResult((sum(models) / len(models) - x,))


def _uses_its_model_after_delta(work: Work, x: Vector) -> ClientResult:
    x_i = x
    for b in work.batches():
        x_i = work.descend(x_i, b, work.round.eta_l)
    return ClientResult((work.delta(x_i, x) + 0.1 * x_i,))


@pytest.mark.parametrize("client", [_averages_its_models, _uses_its_model_after_delta])
def test_vectors_that_descend_has_overwritten_are_refused(client: Any) -> None:
    problem = RunRequest(make_task(), "fedavg", SETTINGS).prepare().problem
    with pytest.raises(WorkerError) as caught:
        train_clients(Serial(), with_client(problem, client), [0], 0.1)
    assert (caught.value.client, caught.value.round) == (problem.federation().train.ids[0], 1)
