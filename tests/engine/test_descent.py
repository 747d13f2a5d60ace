"""Client SGD in place gives what the algorithm's own text gives, on every task."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from test_vectorised import CASES, assert_same, task_problem, train
from torch import nn

from conftest import Pool
from fedopt import rng
from fedopt.algorithms import Algorithm, ClientResult, Vector, Work, fedopt, sgd
from fedopt.algorithms.base import LocalSGD, Round, Still
from fedopt.engine import client as local
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.base import Serial
from fedopt.engine.in_place_sgd import in_place
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, initial_vector, seeded
from fedopt.models.dense import Dense, DenseStack
from fedopt.models.dropout import Dropout
from fedopt.models.emnist import Autoencoder, CharacterCNN
from fedopt.models.flat import Flat
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import NextCharacter, NextWord
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve

RATE = 0.03125


def _as_written(build: Callable[[], Algorithm]) -> Algorithm:
    """The same algorithm without its word that the client is plain SGD: then its own text is run."""
    algorithm = build()
    assert isinstance(algorithm.client, LocalSGD)
    return algorithm._replace(client=Still(algorithm.client.function))


def _clients(case: str) -> tuple[int, ...]:
    return (1, 2) if "cifar" in case else (0, 1, 2)


@pytest.mark.parametrize("case", CASES)
def test_steps_in_place_are_the_algorithms_own_to_the_bit(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, double=False, **settings)
    plain = replace(problem, algorithm=partial(_as_written, problem.algorithm))
    descending = Flat.descending
    monkeypatch.setattr(Flat, "descending", lambda self, rate: descending(self, None))
    expected, found = (train(Serial(), one, _clients(case), lr) for one in (plain, problem))
    assert_same(expected, found, 0.0)
    assert float(found[0][1][0].abs().max()) > 0


@pytest.mark.parametrize("case", CASES)
def test_layers_that_move_themselves_differ_by_rounding_alone(case: str) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, double=False, **settings)
    plain = replace(problem, algorithm=partial(_as_written, problem.algorithm))
    expected, found = (train(Serial(), one, _clients(case), lr) for one in (plain, problem))
    assert_same(expected, found, 3e-5)


def test_a_worker_descends_in_its_shared_memory_to_the_same_numbers(pool: Pool) -> None:
    for algorithm in ("fedavg", "fedadagrad", "scaffold", "fedprox"):
        runs = [small.run(place, algorithm) for place in (Serial(), pool(2))]
        assert torch.equal(runs[0].x, runs[1].x), algorithm


def test_what_a_client_made_in_shared_memory_stays_until_the_next_is_asked_for(pool: Pool) -> None:
    """One worker is at the second and third client while we still look at the first."""
    problem = build_problem(small.SMALL, resolve(small.SMALL, "fedavg", small.SETTINGS))
    expected = train(Serial(), problem, range(12), 0.5)
    sent = problem.algorithm().sent(problem.algorithm().init(initial_vector(problem)))
    executor = pool(1)
    executor.load(problem, problem.federation(), ())
    jobs = [ClientJob(Round(0, 0.5, 1.0, 12, 40), client) for client in range(12)]
    for (_, vectors), (_, alone) in zip(executor.map(jobs, sent), expected, strict=True):
        time.sleep(0.02)
        assert torch.equal(vectors[0], alone[0])


def test_a_client_that_overflows_or_dies_half_way_leaves_nothing_to_the_next_in_its_memory(
    pool: Pool, tmp_path: Path
) -> None:
    everybody = {"clients_per_round": 24, "client.epochs": 3, "client.lr": 0.5, "rounds": 1}
    without = small.run(Serial(), settings=everybody)
    dying = replace(small.SMALL, prepare=partial(small.dead_half_way, str(tmp_path / "dead"), 7))
    assert torch.equal(small.run(pool(3), settings=everybody, task=dying).x, without.x)
    bad = replace(small.SMALL, prepare=partial(small.overflowing_half_way, str(tmp_path), (1, 5, 20)))
    runs = [small.run(place, settings=everybody, task=bad) for place in (Serial(), pool(1), pool(3))]
    assert bool(runs[0].x.isfinite().all()) and not torch.equal(runs[0].x, without.x)
    assert torch.equal(runs[0].x, runs[1].x) and torch.equal(runs[0].x, runs[2].x)


class _Odd(nn.Module):
    """Parameters that some batches do not reach, and gradients that lie in memory the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.short = nn.Linear(small.FEATURES, 4), nn.Linear(small.FEATURES, 4)
        self.never, self.turned = nn.Parameter(torch.ones(3)), nn.Parameter(torch.rand(4, small.FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h: torch.Tensor = self.layer(x) + x @ self.turned.t()
        return h + self.short(x) if len(x) < 8 else h


def test_parameters_without_a_gradient_stay_where_they_are() -> None:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | {"client.epochs": 2})
    problem = replace(build_problem(small.SMALL, config), model=_Odd)
    plain = replace(problem, algorithm=partial(_as_written, problem.algorithm))
    expected, found = (train(Serial(), one, range(4), 0.5) for one in (plain, problem))
    assert_same(expected, found, 0.0)


def test_a_client_of_ones_own_is_never_replaced() -> None:
    def mine(work: Work, x: Vector) -> ClientResult:
        raise AssertionError("only asked about, never run")

    algorithm = fedopt(sgd(), sgd())
    assert in_place(algorithm.client) is not algorithm.client
    assert in_place(algorithm._replace(client=mine).client) is mine
    halved = sgd()._replace(update=lambda x, delta, eta, t, state: (x + eta / 2 * delta, state))
    changed = fedopt(halved, sgd())
    assert in_place(changed.client) is changed.client


@pytest.mark.parametrize("accelerator", [False, True])
def test_a_client_draws_the_same_with_and_without_an_accelerator(
    accelerator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    before = torch.get_rng_state()
    with seeded(1, "client", 2):
        drawn = torch.rand(5)
    assert torch.equal(torch.get_rng_state(), before)
    own = torch.Generator().manual_seed(rng.torch_seed(1, "client", 2))
    assert torch.equal(drawn, torch.rand(5, generator=own))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's")
def test_freed_memory_stays_with_a_process_that_asks_for_it() -> None:
    program = """
import resource
from fedopt.engine.allocation import keep_freed_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        bytearray(b"1") * (64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = pages()
keep_freed_memory()
pages()  # the first time, it has to be had
print(given_back, pages())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    given_back, kept = map(int, ran.stdout.split())
    assert kept < given_back / 10


# -- dense layers


def test_a_dense_layer_takes_the_step_that_is_written_down() -> None:
    layer = Dense(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
        layer.bias.fill_(0.5)
    x = torch.tensor([[3.0, 1.0], [1.0, 1.0]], requires_grad=True)
    layer.rate = 0.25
    # outputs 1.5 and -0.5; the loss is half the sum of squares, so these are its gradients
    (inner,) = torch.autograd.grad(layer(x).square().sum() / 2, [x])
    assert torch.equal(inner, torch.tensor([[1.5, -3.0], [-0.5, 1.0]]))  # by the weights from before
    assert torch.equal(layer.weight.detach(), torch.tensor([[1.0 - 0.25 * 4.0, -2.0 - 0.25 * 1.0]]))
    assert layer.bias.item() == 0.5 - 0.25 * 1.0


def test_a_stack_takes_the_steps_of_its_layers_to_the_bit() -> None:
    ends = []
    for stacked in (True, False):
        torch.manual_seed(1)
        network, x = Autoencoder(), torch.rand(7, 784)
        with Flat(network).descending(RATE):
            assert network.layers.rate == RATE
            if not stacked:
                network.layers.rate = None
            for _ in range(3):
                loss = (network(x) - x).square().sum()
                torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        ends.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert torch.equal(ends[0], ends[1])


def test_a_stack_leaves_its_input_and_says_what_it_does_to_it() -> None:
    torch.manual_seed(1)
    x = torch.rand(4, 3, requires_grad=True)
    gradients = []
    for rate in (None, RATE):
        torch.manual_seed(2)
        stack = DenseStack(nn.Sigmoid(), Dense(3, 2), nn.Sigmoid())
        stack.rate = rate
        before = x.detach().clone()
        gradients.append(torch.autograd.grad(stack(x).square().sum(), [x])[0])
        assert torch.equal(x, before)
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize(
    "change",
    ["forward", "before", "backward", "before backward", "everywhere", "another layer", "own forward"],
)
def test_a_stack_with_layers_that_somebody_watches_or_changed_is_run_layer_by_layer(change: str) -> None:
    network = Autoencoder()
    layer, seen = network.layers[2], list[int]()

    def note(*_: object) -> None:
        seen.append(1)

    def noted(x: torch.Tensor) -> torch.Tensor:
        note()
        return Dense.forward(layer, x)

    watches: dict[str, Callable[[], object]] = {
        "forward": lambda: layer.register_forward_hook(note),
        "before": lambda: layer.register_forward_pre_hook(note),
        "backward": lambda: layer.register_full_backward_hook(note),
        "before backward": lambda: layer.register_full_backward_pre_hook(note),
        "everywhere": lambda: nn.modules.module.register_module_forward_hook(note),
        "another layer": lambda: network.layers.insert(1, nn.Tanh()),
        "own forward": lambda: setattr(layer, "forward", noted),
    }
    watch = watches[change]()
    try:
        with Flat(network).descending(RATE):
            assert network.layers.rate is None and network.layers[0].rate == RATE
            loss = network(torch.rand(2, 784, requires_grad=True)).sum()
            torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    finally:
        if change == "everywhere":
            watch.remove()  # type: ignore[attr-defined]
    assert bool(seen) == (change != "another layer")


def test_a_layer_that_stands_twice_in_a_stack_is_not_moved_behind_autograds_back() -> None:
    network, twice = Autoencoder(), Dense(784, 784)
    network.layers.extend([twice, nn.Sigmoid(), twice])
    with Flat(network).descending(RATE):
        assert network.layers.rate is None
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss = network(torch.rand(2, 784)).sum()
            torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)


def test_a_layer_whose_weight_is_computed_is_trained_by_its_gradients() -> None:
    network = CharacterCNN()
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(network.dense1)
    with Flat(network).descending(RATE):
        assert network.dense1.rate is None and network.dense2.rate == RATE


def test_rows_of_words_take_the_step_that_is_written_down() -> None:
    model = TagRegression(vocabulary=3, tags=1)
    with torch.no_grad():
        model.kernel.copy_(torch.tensor([[1.0], [2.0], [4.0]]))
        model.bias.fill_(0.5)
    model.rate = 0.25
    # texts: words 1, 1 and an unknown one, divided by 3; word 3 alone; none
    out = model(torch.tensor([[1, 1, 9], [3, 0, 0], [0, 0, 0]]))
    assert torch.allclose(out, torch.tensor([[2 / 3 + 0.5], [4.5], [0.5]]))
    kernel, bias = torch.autograd.grad(
        (out * torch.tensor([[3.0], [2.0], [1.0]])).sum(), [model.kernel, model.bias], allow_unused=True
    )
    assert kernel is None and bias.item() == 6.0
    expected = torch.tensor([[1.0 - 0.25 * 3 * 2 / 3], [2.0], [4.0 - 0.25 * 2]])
    assert torch.allclose(model.kernel.detach(), expected)


def test_a_dense_layer_without_a_rate_is_a_linear_one() -> None:
    torch.manual_seed(0)
    layer, plain = Dense(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(layer.state_dict())
    x = torch.rand(4, 2, 5)
    assert torch.equal(layer(x), plain(x))
    layer.rate = 0.1
    with torch.no_grad():
        assert torch.equal(layer(x), plain(x))
    assert torch.equal(layer.weight, plain.weight), "measuring a model moves nothing"


def _steps(module: nn.Module, x: torch.Tensor, rate: float | None) -> torch.Tensor:
    """The parameters after two steps of SGD; with a rate, of layers that move themselves."""
    flat = Flat(module)
    flat.bind(flat.read())
    with flat.descending(rate):
        for batch in (x, x + 1):
            found = torch.autograd.grad(module(batch).square().sum(), flat.parameters, allow_unused=True)
            with torch.no_grad():
                for p, g in zip(flat.parameters, found, strict=True):
                    if g is not None:
                        p.sub_(g, alpha=RATE)
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = Dense(4, 4), Dense(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        out: torch.Tensor = self.last(x)
        return out


class _Adversarial(nn.Module):
    """Trained where its inputs hurt most, which a backward pass within the forward pass finds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Recurrent()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            x = x.clone().requires_grad_()
            x = (x + 0.1 * torch.autograd.grad(self.inner(x).sum(), x)[0].sign()).detach()
        out: torch.Tensor = self.inner(x)
        return out


class _Tied(nn.Module):
    """Two layers with one weight, which is also used without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Dense(4, 4), Dense(4, 4)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.two(torch.tanh(self.one(x @ self.one.weight)))) @ self.two.weight


def _frozen(first: str) -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), Dense(4, 4), nn.Tanh(), Dense(4, 2))
    module.get_parameter(first).requires_grad_(False)
    return module


def _normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(Dense(4, 3)), nn.Tanh(), Dense(3, 2))


def _clipped() -> nn.Module:
    module = nn.Sequential(Dense(4, 3), Dense(3, 2))
    module[0].weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
    return module


def _in_two_places() -> nn.Module:
    layer = Dense(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer, Dense(4, 2))


def _one_without_bias() -> nn.Module:
    return nn.Sequential(Dense(4, 3, bias=False), nn.Tanh(), Dense(3, 2))


class _Branches(nn.Module):
    """A layer of which nothing comes, a call that leads nowhere, and inputs of several dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = Dense(4, 3), Dense(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.used(x)
        out: torch.Tensor = self.used(x.view(2, 3, 4)).transpose(0, 2)
        return out


@pytest.mark.parametrize(
    "build",
    [
        _Recurrent,
        _Adversarial,
        _Tied,
        _Branches,
        _normed,
        _clipped,
        _in_two_places,
        _one_without_bias,
        partial(_frozen, "1.weight"),
        partial(_frozen, "1.bias"),
        partial(_frozen, "3.weight"),
    ],
)
def test_models_of_all_kinds_take_the_same_steps_whoever_moves_the_dense_layers(
    build: Callable[[], nn.Module],
) -> None:
    ends = []
    for rate in (None, RATE):
        torch.manual_seed(3)
        ends.append(_steps(build(), torch.rand(6, 4), rate))
    assert torch.allclose(ends[0], ends[1], rtol=1e-5, atol=1e-6)


def test_the_dense_layers_of_the_papers_networks_move_themselves() -> None:
    networks: dict[Callable[[], nn.Module], int] = {
        CharacterCNN: 2,
        Autoencoder: 8,
        NextCharacter: 1,
        NextWord: 2,
    }
    for build, count in networks.items():
        module = build()
        flat = Flat(module)
        with flat.descending(0.5):
            assert [layer.rate for layer in module.modules() if isinstance(layer, Dense)] == [0.5] * count
    tags = TagRegression()
    with Flat(tags).descending(0.5):
        assert tags.rate == 0.5


class _Pixels(CharacterCNN):
    """Somebody's own variant, of which nothing is known."""


def _changed(change: str) -> nn.Module:
    module = _Pixels() if change == "a subclass" else CharacterCNN()
    if change == "frozen":
        module.dense1.weight.requires_grad_(False)
    elif change == "watched":
        module.dense2.bias.register_hook(lambda g: g)
    elif change == "normed":
        nn.utils.parametrizations.weight_norm(module.dense1)
    return module


@pytest.mark.parametrize(
    ("change", "moving"), [("none", 2), ("normed", 1), ("frozen", 0), ("watched", 0), ("a subclass", 0)]
)
def test_a_network_that_somebody_changed_is_trained_by_its_gradients(change: str, moving: int) -> None:
    module = _changed(change)
    flat = Flat(module)
    with flat.descending(0.5):
        rates = [layer.rate for layer in module.modules() if isinstance(layer, Dense)]
    assert rates.count(0.5) == moving


def test_rates_end_with_the_client_that_descends_by_them() -> None:
    flat = Flat(Autoencoder())
    layers = [layer for layer in flat.module.modules() if isinstance(layer, Dense)]
    with pytest.raises(ZeroDivisionError), flat.descending(0.5):
        assert {layer.rate for layer in layers} == {0.5}
        raise ZeroDivisionError
    assert {layer.rate for layer in layers} == {None}


def test_a_dense_layer_that_is_used_twice_cannot_move_unnoticed() -> None:
    layer = Dense(3, 3)
    layer.rate = 0.1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(layer(layer(torch.rand(2, 3))).sum(), [layer.weight], allow_unused=True)


# -- dropout


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_dropout_keeps_its_share_and_scales_it_up(rate: float) -> None:
    torch.manual_seed(0)
    n = 999_999  # not a multiple of eight
    out = Dropout(rate)(torch.ones(n))
    kept = out[out != 0]
    assert torch.equal(kept, torch.full_like(kept, 1 / (1 - rate)))
    spread = (rate * (1 - rate) / n) ** 0.5
    assert abs(len(kept) / n - (1 - rate)) < 4 * spread
    # neighbours are independent: both are kept as often as chance has it
    both = (out[1:] != 0) & (out[:-1] != 0)
    assert both.double().mean().item() == pytest.approx((1 - rate) ** 2, abs=4e-3)


def test_dropout_follows_torchs_generator_and_rests_outside_training() -> None:
    layer, x = Dropout(0.5), torch.rand(7, 5)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(layer(x))
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("rate", [1 / 3, 1.0])
def test_dropout_refuses_a_rate_that_bytes_cannot_give(rate: float) -> None:
    with pytest.raises(ValueError, match="multiple of 1/256"):
        Dropout(rate)


# -- batches


@pytest.mark.parametrize(("room", "ahead"), [(2 << 20, [1, 9, 9, 9]), (1, [1, 2, 3, 4])])
def test_small_batches_are_prepared_a_few_at_a_time_and_large_ones_one_by_one(
    room: int, ahead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many are prepared when the first four are taken; all are the same either way."""
    monkeypatch.setattr(local, "_AHEAD_BYTES", room)
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | {"client.steps": 12})
    problem = build_problem(small.SMALL, config)
    prepared: list[int] = []

    def prepare(*arguments: Any) -> Any:
        prepared.append(1)
        return problem.prepare(*arguments)

    arrays = problem.federation().train.client(0)
    facts = Round(0, 0.1, 1.0, 1, 1)

    def work(of: Problem) -> ClientWork:
        return ClientWork(of, Flat(of.model()), arrays, "0", facts, None)

    counts, seen = [], []
    for batch in work(replace(problem, prepare=prepare)).batches():
        counts.append(len(prepared))
        seen.append(batch)
    assert counts[:4] == ahead and len(seen) == len(prepared) == 12
    monkeypatch.setattr(local, "_AHEAD", 1)
    for mine, (inputs, targets) in zip(seen, work(problem).batches(), strict=True):
        assert torch.equal(mine[0], inputs) and torch.equal(mine[1], targets)
