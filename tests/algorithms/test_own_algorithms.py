"""User-defined algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from own_clients import (
    assert_refused,
    examples,
    linear,
    make_task,
    train,
)
from torch import Tensor, nn

import fedopt
from fedopt import algorithms
from fedopt.errors import ModelError


def sign_step(x: Tensor, delta: Tensor, eta: float, t: int, state: Any) -> tuple[Tensor, Any]:
    return x + eta * delta.sign(), state


def fedsign() -> fedopt.Algorithm:
    return algorithms.fedopt(algorithms.sgd(), fedopt.Optimizer(sign_step))


def test_own_algorithm_is_passed_as_object_or_function() -> None:
    """One round of sign descent from zero moves every weight by eta or not at all."""
    model = linear()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    config = {"server.lr": 0.25}
    given = train(make_task(model), rounds=1, algorithm=fedsign(), config=config)
    built = train(make_task(model), rounds=1, algorithm=fedsign, config=config)
    assert set(given.x.abs().tolist()) == {0.25}
    assert torch.equal(given.x, built.x)
    assert (given.algorithm, built.algorithm) == ("own", "fedsign")


def test_state_of_an_own_optimizer_survives_a_resume(tmp_path: Path) -> None:
    class Sum(NamedTuple):
        total: Tensor

    def update(x: Tensor, delta: Tensor, eta: float, t: int, state: Sum) -> tuple[Tensor, Sum]:
        total = state.total + delta
        return x + eta / (t + 1) * total, Sum(total)

    algorithm = algorithms.fedopt(
        algorithms.sgd(), fedopt.Optimizer(update, lambda x: Sum(torch.zeros_like(x)))
    )
    task = make_task()
    whole = train(task, rounds=4, algorithm=algorithm)
    train(task, rounds=2, algorithm=algorithm, out=tmp_path / "run")
    assert train(task, rounds=4, algorithm=algorithm, out=tmp_path / "run").x_sha256 == whole.x_sha256


class JustX(NamedTuple):
    x: Tensor


def test_algorithm_consists_of_three_functions() -> None:
    """FedSGD: clients return their full gradient, the server descends by the mean, sum_i n_i g_i / n."""
    fedsgd = fedopt.Algorithm(
        init=JustX,
        client=lambda work, x: fedopt.ClientResult((work.full_gradient(x),)),
        server=lambda state, mean, round: JustX(state.x - round.eta * mean[0]),
    )
    clients = {"a": examples("a", 3), "b": examples("b", 9)}
    config = {"clients_per_round": 2, "client.batch_size": 9, "server.lr": 0.5}
    model = linear()
    result = train(make_task(model, clients=clients), rounds=1, algorithm=fedsgd, config=config)

    points, labels = (torch.from_numpy(np.concatenate(part)) for part in zip(*clients.values(), strict=True))
    F.cross_entropy(model(points), labels).backward()  # the mean over all examples is that weighted mean
    by_hand = torch.cat([(p - 0.5 * p.grad).detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(result.x, by_hand)


def test_algorithm_without_gradients_is_not_given_up() -> None:
    """Clients that return the model's negative: x + eta (-x) with eta = 1/2 halves the model each round."""
    halving = fedopt.Algorithm(
        init=JustX,
        client=lambda work, x: fedopt.ClientResult((-x,)),
        server=lambda state, mean, round: JustX(state.x + round.eta * mean[0]),
    )
    model = linear()
    result = train(make_task(model), rounds=7, algorithm=halving, config={"server.lr": 0.5})
    start = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(result.x, start / 2**7)


def test_algorithm_that_workers_cannot_import_is_refused() -> None:
    def run(**changes: Any) -> Any:
        options: Mapping[str, Any] = {"algorithm": changes.pop("algorithm", "fedavg")}
        with fedopt.workers(1):  # otherwise a small run does not use workers
            return train(make_task(**changes), executor="processes", **options)

    assert_refused(
        lambda: run(loss=lambda outputs, targets: F.cross_entropy(outputs, targets)),
        ModelError,
        what="problem",
    )
    local = fedsign()._replace(client=lambda work, x: _sgd_client(work, x))
    assert_refused(lambda: run(algorithm=local), ModelError, what="problem")


def test_worker_processes_give_identical_results() -> None:
    task = make_task()
    serial = train(task, algorithm=fedsign)
    with fedopt.workers(1):  # otherwise a small run does not use workers
        for algorithm in (fedsign, fedsign()):
            workers = train(task, algorithm=algorithm, executor="processes")
            assert workers.x_sha256 == serial.x_sha256


def _sgd_client(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    x_i = x
    for batch in work.batches():
        x_i = x_i - work.round.eta_l * work.gradient(x_i, batch)
    return fedopt.ClientResult((x_i - x,))


def _in_place(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    x_i = x
    for batch in work.batches():
        x_i -= work.round.eta_l * work.gradient(x_i, batch)
    return fedopt.ClientResult((x_i - x,))


def _undeclared(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    (delta,) = _sgd_client(work, x).returns
    return fedopt.ClientResult((delta,), keeps=(delta,))


def _short(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    return fedopt.ClientResult((_sgd_client(work, x).returns[0][:-1],))


@pytest.mark.parametrize("client", [_in_place, _undeclared, _short, lambda work, x: x])
def test_client_that_breaks_the_contract_is_refused(client: Any) -> None:
    algorithm = algorithms.fedopt(algorithms.sgd(), algorithms.sgd())._replace(client=client)
    assert_refused(lambda: train(make_task(), algorithm=algorithm), ModelError, what="client")


class _TwoOfX(NamedTuple):
    x: torch.Tensor


@pytest.mark.parametrize(
    "optimizer",
    [
        fedopt.Optimizer(lambda x, delta, eta, t, s: (x + eta * delta, (delta,))),  # a state without init
        fedopt.Optimizer(lambda x, delta, eta, t, s: (x, s), lambda x: {"m": x}),
        fedopt.Optimizer(lambda x, delta, eta, t, s: (x, s), lambda x: (0.5,)),
        fedopt.Optimizer(lambda x, delta, eta, t, s: (x, s), lambda x: _TwoOfX(x)),
    ],
    ids=["no init", "dict", "number", "two vectors x"],
)
def test_server_state_that_cannot_be_checkpointed_is_refused(optimizer: Any) -> None:
    algorithm = algorithms.fedopt(algorithms.sgd(), optimizer)
    assert_refused(lambda: train(make_task(), algorithm=algorithm), ModelError)


@pytest.mark.parametrize("side", ["client", "server"])
def test_optimizer_that_returns_one_tensor_is_refused(side: str) -> None:
    def forgets_state(x, delta, eta, t, state):
        return x + eta * delta

    optimizers = {
        "client": algorithms.sgd(),
        "server": algorithms.sgd(),
        side: fedopt.Optimizer(forgets_state),
    }

    def algorithm() -> fedopt.Algorithm:
        return algorithms.fedopt(optimizers["client"], optimizers["server"])

    with pytest.raises(ModelError, match="'forgets_state'.*return x, state") as caught:
        train(make_task(), algorithm=algorithm)
    assert caught.value.what == "optimizer" and "\n" not in str(caught.value)
