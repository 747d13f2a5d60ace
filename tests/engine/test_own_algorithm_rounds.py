"""Algorithms of a user: errors name the function, and every client that took part counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from own_clients import CLIENTS, assert_refused, linear, make_task, train

import fedopt
from fedopt.algorithms import sgd
from fedopt.errors import ModelError


class OwnState(NamedTuple):
    x: torch.Tensor


class StateWithoutX(NamedTuple):
    weights: torch.Tensor


def take_no_step(work: fedopt.Work, x: torch.Tensor) -> fedopt.ClientResult:
    return fedopt.ClientResult((torch.zeros_like(x),))


def fail(*arguments: Any) -> Any:
    raise NameError("name 'eta' is not defined")


@pytest.mark.parametrize(
    ("algorithm", "what"),
    [
        (fedopt.Algorithm(OwnState, take_no_step, fail), "server"),
        (fedopt.Algorithm(OwnState, take_no_step, lambda state, mean, round: state.x), "server"),
        (fedopt.Algorithm(fail, take_no_step, fail), "init"),
        (fedopt.Algorithm(StateWithoutX, take_no_step, fail), "init"),
        (fedopt.Algorithm(OwnState, take_no_step, fail, sends=("x", "c")), "init"),
    ],
    ids=["server raises", "server returns x", "init raises", "no x", "no c"],
)
def test_error_in_an_own_algorithm_names_its_function(
    algorithm: fedopt.Algorithm, what: str, tmp_path: Path
) -> None:
    assert_refused(
        lambda: train(make_task(), algorithm=algorithm, out=tmp_path / "run"), ModelError, what=what
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


def test_client_that_only_uses_the_full_gradient_is_part_of_the_mean() -> None:
    def client(work: fedopt.Work, x: torch.Tensor) -> fedopt.ClientResult:
        return fedopt.ClientResult((-work.round.eta_l * work.full_gradient(x),))

    def server(state: OwnState, mean: tuple[torch.Tensor, ...], round: fedopt.Round) -> OwnState:
        return OwnState(state.x + mean[0])

    settings = {"clients_per_round": 6, "client.lr": 0.1, "client.batch_size": 12}
    result = train(
        make_task(), rounds=1, algorithm=fedopt.Algorithm(OwnState, client, server), config=settings
    )
    model = linear()
    start = train(make_task(), rounds=1, config=settings | {"client.lr": 1e-30}).x
    torch.nn.utils.vector_to_parameters(start, model.parameters())
    points, labels = (np.concatenate(parts) for parts in zip(*CLIENTS.values(), strict=True))
    loss = F.cross_entropy(model(torch.tensor(points)), torch.tensor(labels))
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
    torch.testing.assert_close(result.x, start - 0.1 * gradient)
    assert result.train[-1]["clients"] == 6
    assert result.train[-1]["loss"] == pytest.approx(loss.item(), rel=1e-5)


class _Model(NamedTuple):
    x: torch.Tensor


def _counting_client(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    """Count in place the rounds in which this client was part of the mean. Round 2 is not finite."""
    (count,) = work.kept_or(torch.zeros_like(x))
    count += 1
    for batch in work.batches():
        work.gradient(x, batch)
    delta = torch.full_like(x, float("nan")) if work.round.t == 1 else count
    return fedopt.ClientResult((delta,), keeps=(count,))


@pytest.mark.parametrize("has_directory", [False, True])
def test_kept_vector_of_a_rejected_client_does_not_change(tmp_path: Path, has_directory: bool) -> None:
    algorithm = fedopt.Algorithm(
        _Model, _counting_client, lambda state, mean, round: _Model(mean[0]), keeps=("count",)
    )
    options = {"out": tmp_path / "run"} if has_directory else {}
    result = train(make_task(), 3, algorithm=algorithm, config={"clients_per_round": 6}, **options)
    assert torch.equal(result.x, torch.full_like(result.x, 2.0))


def test_random_numbers_of_a_server_function_follow_from_the_seed() -> None:
    """Equal seeds give equal models, and the user's generator is not touched."""

    def server(state: Any, mean: tuple[torch.Tensor, ...], round: Any) -> Any:
        return state._replace(x=state.x + mean[0] + 0.001 * torch.randn(len(mean[0])))

    algorithm = fedopt.algorithms.fedopt(sgd(), sgd())._replace(server=server)

    def final_x(seed: int) -> torch.Tensor:
        return fedopt.run("synthetic_lr", algorithm, rounds=2, seed=seed, config={"client.steps": 1}).x

    torch.manual_seed(1)
    first, after = final_x(0), torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    torch.manual_seed(2)
    assert torch.equal(final_x(0), first) and not torch.equal(final_x(1), first)
