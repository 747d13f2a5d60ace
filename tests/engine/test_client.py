"""A client's batches, gradients and weights."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedopt.algorithms import Round
from fedopt.engine.client import ClientWork
from fedopt.engine.problem import LocalWork
from fedopt.models.flat import Flat

quick = settings(deadline=None, derandomize=True, max_examples=60)


def client_work(local: LocalWork, n: int, seed: int = 0, t: int = 0, client: str = "a") -> ClientWork:
    """Return a client whose targets are the positions of its examples."""
    problem = replace(small.problem(), local=local, seed=seed)
    arrays = (np.zeros((n, small.FEATURES), np.float32), np.arange(n))
    return ClientWork(problem, Flat(small.network()), arrays, client, Round(t, 0.1, 1.0, 1, 1), None)


def orders(work: ClientWork) -> list[list[int]]:
    return [targets.tolist() for _, targets in work.batches()]


@pytest.mark.parametrize(
    ("local", "n", "expected"),
    [
        (LocalWork(4), 10, [4, 4, 2]),
        (LocalWork(4, epochs=2), 10, [4, 4, 2, 4, 4, 2]),
        (LocalWork(4, epochs=2, drop_last=True), 10, [4, 4, 4, 4]),
        (LocalWork(4, steps=2), 10, [4, 4]),
        (LocalWork(4, steps=5), 10, [4, 4, 2, 4, 4]),
        (LocalWork(4, steps=5, drop_last=True), 10, [4, 4, 4, 4, 4]),
        (LocalWork(5, epochs=3), 10, [5, 5, 5, 5, 5, 5]),
        (LocalWork(16, epochs=2), 10, [10, 10]),
        (LocalWork(16, epochs=2, drop_last=True), 10, []),
        (LocalWork(16, steps=3, drop_last=True), 10, []),
    ],
)
def test_batch_sizes_of_epochs_and_steps(local: LocalWork, n: int, expected: list[int]):
    work = client_work(local, n)
    assert [len(batch) for batch in orders(work)] == expected
    assert work.steps == len(expected)


@quick
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.booleans())
def test_every_epoch_is_a_permutation(n: int, batch: int, epochs: int, drop: bool):
    work = client_work(LocalWork(batch, epochs, drop_last=drop), n)
    batches = orders(work)
    per_epoch = n // batch if drop else math.ceil(n / batch)
    assert len(batches) == work.steps == epochs * per_epoch
    for e in range(epochs if per_epoch else 0):
        seen = sum(batches[e * per_epoch : (e + 1) * per_epoch], [])
        assert len(set(seen)) == len(seen) == (per_epoch * batch if drop else n)


def test_each_epoch_round_and_client_has_its_own_shuffle():
    local = LocalWork(30, epochs=2)
    first, second = orders(client_work(local, 30))
    others = [orders(client_work(local, 30, **change))[0] for change in ({"t": 1}, {"client": "b"})]
    all_orders = [list(range(30)), first, second, *others]
    assert len({tuple(order) for order in all_orders}) == 5
    assert orders(client_work(local, 30)) == [first, second]


def test_gradient_of_mean_and_sum_reduction():
    inputs, targets, _ = map(torch.from_numpy, small.cloud("train", 7, 0))
    module = small.network(dropout=0.0)
    F.cross_entropy(module(inputs), targets, reduction="sum").backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    flat = Flat(copy.deepcopy(module))
    for reduction, factor in (("sum", 1.0), ("mean", 1 / 7)):
        problem = replace(small.problem(), reduction=reduction)
        work = ClientWork(problem, flat, (inputs.numpy(),), "a", Round(0, 0.1, 1.0, 1, 1), None)
        assert_allclose(
            work.gradient(flat.read(), (inputs, targets)), expected * factor, rtol=1e-5, atol=1e-6
        )


def test_shuffle_depends_on_the_seed():
    first, again, other = (orders(client_work(LocalWork(50), 50, seed=s)) for s in (1, 1, 2))
    assert first == again != other


def test_augmentation_generator_depends_on_seed_round_client_and_epoch():
    drawn = []

    def prepare(examples: Any, augment: np.random.Generator) -> Any:
        drawn.append(float(augment.random()))
        return examples[0], examples[1]

    for change in ({}, {"seed": 1}, {"t": 1}, {"client": "b"}):
        work = client_work(LocalWork(10, epochs=2), 10, **change)
        work._problem = replace(work._problem, prepare=prepare)
        list(work.batches())
    assert len(set(drawn)) == len(drawn) == 8


@pytest.mark.parametrize(("drop_last", "stops"), [(True, [4, 8]), (False, [4, 8, 10])])
def test_full_gradient_averages_the_batches_that_are_trained(drop_last: bool, stops: list[int]):
    """Ten examples in batches of four: the last two count only if short batches are kept."""
    inputs, targets, _ = small.cloud("train", 10, 0)
    problem = replace(small.problem(), local=LocalWork(4, drop_last=drop_last))
    module = small.network(dropout=0.0)
    gradients = []
    for start, stop in zip([0, *stops], stops, strict=False):
        module.zero_grad()
        batch = (torch.from_numpy(a[start:stop]) for a in (inputs, targets))
        F.cross_entropy(module(next(batch)), next(batch)).backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    flat = Flat(copy.deepcopy(module))
    work = ClientWork(problem, flat, (inputs, targets, targets), "a", Round(0, 0.1, 1.0, 1, 1), None)
    torch.testing.assert_close(work.full_gradient(flat.read()), torch.stack(gradients).mean(0))
    assert work.statistics().steps == 0
