"""Clients that train together get the results of clients that train one after the other.

Comparisons of the mathematics use double precision: a few steps then differ by about 1e-14 of an update, and
a wrong row, mask or weight is visible. In single precision one step differs by about 1e-6. Later steps can
differ more, because a pooling layer with two nearly equal pixels passes the gradient to one or the other.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from torch import Tensor, nn
from training import CASES, assert_same, task_problem, train_clients

from fedopt.algorithms import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms import fedopt as fedopt_algorithm
from fedopt.algorithms.optimizers import sgd, step
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.cooperative import CooperativeThread
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.stacking import GradientRequest
from fedopt.engine.executors.vectorised import Vectorised, _DeviceWorker
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, initial_vector
from fedopt.errors import FedoptError
from fedopt.models.flat import Flat
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


@pytest.fixture
def double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow models in double precision."""
    monkeypatch.setattr(Flat, "_check_parameters", lambda self: None)


@pytest.mark.parametrize("case", CASES)
def test_unequal_clients_of_every_task_equal_serial(case: str, double_precision: None) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, **settings)
    vectorised = Vectorised()
    clients = (1, 2) if "cifar" in case else (0, 1, 2)
    expected, actual = (train_clients(one, problem, clients, lr) for one in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert_same(expected, actual, 1e-11)
    assert float(actual[0][1][0].abs().max()) > 0


@pytest.mark.parametrize("name", TASKS)
def test_one_step_in_single_precision_differs_only_by_rounding(name: str) -> None:
    size = 1 if "cifar" in name else 3
    problem = task_problem(name, double=False, **{"client.steps": 1, "client.batch_size": size})
    vectorised = Vectorised()
    rate = CASES[name][1]
    expected, actual = (train_clients(one, problem, (0, 1), rate) for one in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert_same(expected, actual, 1e-5)


def test_inputs_of_different_width_are_padded(double_precision: None) -> None:
    # SCAFFOLD trains all rows
    problem = task_problem("so_lr", "scaffold", **{"model.vocabulary": 1000})
    widths = {problem.federation().train.client(i)[0].shape[1] for i in range(3)}
    assert len(widths) > 1
    expected, actual = (
        train_clients(executor, problem, (0, 1, 2), 1.0) for executor in (Serial(), Vectorised())
    )
    assert actual[0][0].rows is None
    assert_same(expected, actual, 1e-11)


@pytest.mark.parametrize("name", TASKS)
def test_all_tensors_of_a_stack_are_on_its_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's `meta` device has shapes without values, and raises an error if it is mixed with another."""
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(2, device="meta") + torch.ones(2)
    monkeypatch.setattr(Flat, "_check_parameters", lambda self: None)  # tensors on `meta` have no address
    problem = task_problem(name, double=False)
    meta, cpu = (_DeviceWorker(problem, problem.federation(), (), device) for device in ("meta", "cpu"))
    assert meta.stack is not None
    requests = []
    for client in range(3):
        arrays, rows = meta.client_data(client)
        arguments = ("", Round(0, 0.1, 1.0, 3, 3), None, rows)
        inputs, targets = list(ClientWork(meta.problem, meta.flat, arrays, *arguments).batches())[-1]
        (on_cpu, _) = list(ClientWork(cpu.problem, cpu.flat, arrays, *arguments).batches())[-1]
        meta.stack.masks.draw(on_cpu)  # records the calls in a forward pass with numbers
        x = torch.zeros(rows.size if rows else meta.flat.d, device="meta")
        requests.append(GradientRequest(x, rows, inputs, targets, meta.stack.masks.draw(inputs)))
    meta.stack.inspect(requests[0].inputs, requests[0].targets)
    replies = meta.stack.gradients(requests)
    assert [reply.gradient.shape for reply in replies] == [request.x.shape for request in requests]
    assert {value.device.type for reply in replies for value in reply} == {"meta"}


@pytest.mark.parametrize("case", small.CASES)
def test_every_algorithm_equals_serial(case: str) -> None:
    """Three rounds with 6 of 8 clients: most take part again, with their kept vectors."""
    algorithm, changes = small.CASES[case]
    settings = {"data.clients": 8, "eval.sample": 8, **changes}
    vectorised = Vectorised()
    expected, actual = (small.run(executor, algorithm, settings) for executor in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    start = small.run(Serial(), algorithm, settings | {"client.lr": 1e-30, "rounds": 1}).x
    largest = float((expected.x - start).abs().max())
    assert largest > 1e-4
    assert float((expected.x - actual.x).abs().max()) <= 1e-4 * largest
    for one, other in zip(expected.train, actual.train, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert all(one[key] == other[key] for key in one if key not in ("loss", "seconds"))


def noisy() -> Algorithm:
    """An algorithm that uses norms and random numbers of each client."""

    def client(work: Work, x: Vector) -> ClientResult:
        x_i = x
        for b in work.batches():
            g = work.gradient(x_i, b)
            noise = torch.randn(1).item() * torch.ones_like(g)
            x_i = step(x_i, -g / g.norm() + 0.01 * noise, work.round.eta_l)
        return ClientResult(((x_i - x) / work.steps,))

    return fedopt_algorithm(sgd(), sgd())._replace(client=client)


def test_own_algorithm_with_norms_and_random_numbers_equals_serial() -> None:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS)
    problem = build_problem(small.SMALL, config, noisy)
    vectorised = Vectorised()
    expected, actual = (
        train_clients(executor, problem, range(6), 0.1) for executor in (Serial(), vectorised)
    )
    assert vectorised.fallback_reason == ""
    assert_same(expected, actual, 1e-5)


def _with_batch_statistics() -> nn.Module:
    norm = nn.BatchNorm1d(small.HIDDEN, track_running_stats=False)
    return nn.Sequential(nn.Linear(small.FEATURES, small.HIDDEN), norm, nn.Tanh(), nn.Linear(small.HIDDEN, 4))


class _Tied(nn.Module):
    """A shared parameter, a frozen layer, dropout that is called twice, and dropout of whole features."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(small.FEATURES, small.FEATURES)
        self.second = nn.Linear(small.FEATURES, small.FEATURES)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(small.FEATURES, 4).requires_grad_(False)
        self.dropout, self.features = nn.Dropout(0.3, inplace=True), nn.Dropout1d(0.4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.dropout(self.first(x)))
        h = self.features(self.dropout(self.second(h)).unsqueeze(-1)).squeeze(-1)
        out: Tensor = self.frozen(h)
        return out


class _Recurrent(nn.Module):
    """A model with operations that vmap does not support."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.dense = nn.LSTM(2, 3), nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense(self.dropout(self.lstm(x.view(len(x), 4, 2).transpose(0, 1))[0][-1]))
        return out


def with_model(model: Any, **changes: Any) -> Problem:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | changes)
    return replace(build_problem(small.SMALL, config), model=model)


@pytest.mark.parametrize("model", [_with_batch_statistics, _Tied])
@pytest.mark.parametrize("loss", ["each", "mean"])
def test_batches_of_models_without_declaration_are_not_padded(model: Any, loss: str) -> None:
    problem = with_model(model, **{"client.epochs": 2, "client.batch_size": 10})
    if loss == "mean":
        problem = replace(problem, loss=nn.functional.cross_entropy)
    vectorised = Vectorised()
    expected, actual = (
        train_clients(executor, problem, range(8), 0.1) for executor in (Serial(), vectorised)
    )
    assert vectorised.fallback_reason == ""
    assert_same(expected, actual, 1e-4)


def test_model_that_vmap_does_not_support_falls_back() -> None:
    problem = with_model(_Recurrent)
    vectorised = Vectorised()
    expected, actual = (
        train_clients(executor, problem, range(6), 0.1) for executor in (Serial(), vectorised)
    )
    assert "batching rule" in vectorised.fallback_reason
    assert_same(expected, actual, 0.0)
    job = ClientJob(Round(0, 0.1, 1.0, 6, 40), 2)
    again = list(vectorised.map([job], (initial_vector(problem),)))
    assert_same(expected[2:3], again, 0.0)


@pytest.mark.parametrize(("floats", "clients"), [(1, 1), (5000, 2), (1 << 20, 256)])
def test_memory_limit_bounds_the_stack_size(floats: int, clients: int) -> None:
    problem, executor = with_model(small.network), Vectorised(floats=floats)
    expected, actual = (train_clients(one, problem, range(6), 0.1) for one in (Serial(), executor))
    assert executor._worker.stack_size(ClientJob(Round(0, 0.1, 1.0, 6, 24), 1), floats) == clients
    assert_same(expected, actual, 1e-5)


def test_non_finite_clients_do_not_affect_others() -> None:
    problem = replace(with_model(small.network), prepare=partial(small.tainted, (2, 4)))
    expected, actual = (
        train_clients(executor, problem, range(6), 0.1) for executor in (Serial(), Vectorised())
    )
    assert [report.finite for report, _ in actual] == [True, True, False, True, False, True]
    assert_same(expected, actual, 1e-5)


def test_vectorised_skips_clients_without_a_batch() -> None:
    problem = with_model(small.network, **{"client.batch_size": 20, "client.drop_last": True})
    expected, actual = (
        train_clients(executor, problem, range(6), 0.1) for executor in (Serial(), Vectorised())
    )
    assert {report.steps for report, _ in actual} >= {0, 1}
    assert_same(expected, actual, 1e-5)


@pytest.mark.parametrize("failing", ["loss", "data"])
def test_error_names_its_client_and_leaves_no_thread(failing: str) -> None:
    problem = replace(with_model(small.network), prepare=partial(small.marked, 3), loss=small.picky)
    if failing == "data":
        problem = replace(with_model(small.network), federation=partial(small.with_an_empty_client, ""))
    messages = []
    for executor in (Serial(), Vectorised()):
        state = torch.get_rng_state()
        with pytest.raises(FedoptError) as caught:
            train_clients(executor, problem, range(6), 0.1)
        messages.append(str(caught.value))
        assert torch.equal(torch.get_rng_state(), state)
    assert messages[0] == messages[1]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, CooperativeThread)]


def test_interrupted_round_leaves_no_thread() -> None:
    problem = with_model(small.network)
    executor = Vectorised()
    expected = train_clients(executor, problem, range(6), 0.1)
    stack = executor._worker.stack
    assert stack is not None
    gradients, calls = stack.gradients, []

    def interrupted(requests: Any) -> Any:
        calls.append(len(requests))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return gradients(requests)

    stack.gradients = interrupted  # type: ignore[method-assign]
    algorithm = problem.algorithm()
    sent = algorithm.sent(algorithm.init(initial_vector(problem)))
    jobs = [ClientJob(Round(0, 0.1, 1.0, 6, 40), client) for client in range(6)]
    with pytest.raises(KeyboardInterrupt):
        list(executor.map(jobs, sent))
    assert not [thread for thread in threading.enumerate() if isinstance(thread, CooperativeThread)]
    stack.gradients = gradients  # type: ignore[method-assign]
    assert_same(expected, list(executor.map(jobs, sent)), 0.0)


def test_resumed_vectorised_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    """Equal to the bit, although the stack size is computed from another first client."""
    settings = {"data.clients": 8, "clients_per_round": 4, "client.batch_size": 30}
    uninterrupted = small.run(Vectorised(floats=7000), "scaffold", settings | {"rounds": 4})
    small.run(Vectorised(floats=7000), "scaffold", settings | {"rounds": 2}, out=tmp_path / "run")
    resumed = small.run(Vectorised(floats=7000), "scaffold", settings | {"rounds": 4}, out=tmp_path / "run")
    assert torch.equal(uninterrupted.x, resumed.x)
    assert uninterrupted.test[-1]["accuracy"] == resumed.test[-1]["accuracy"]
