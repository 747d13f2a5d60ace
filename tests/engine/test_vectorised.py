"""Clients that train many at a time give the numbers of those that train one after the other.

Where it is the mathematics that is compared, both sides compute in double precision: a few steps then differ
by 1e-14 or so of an update, and a wrong row, mask or weight would be seen. In single precision one step
differs by 1e-6 or so; later ones may differ by more, because a pooling layer that finds two pixels nearly
equal passes the gradient to one or the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import torch
from test_cli import fedopt as command
from torch import Tensor, nn

import fedopt
from fedopt.algorithms import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms import fedopt as fedopt_algorithm
from fedopt.algorithms.optimizers import sgd, step
from fedopt.data import Arrays, Federation
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.base import Executor, Serial
from fedopt.engine.executors.cooperative import Turn
from fedopt.engine.executors.stacking import Question
from fedopt.engine.executors.vectorised import Vectorised, _Runner
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Outcome, initial_vector
from fedopt.errors import FedoptError
from fedopt.models.flat import Flat
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import LSTM
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

SIZES = (7, 5, 3)  # examples of the three clients: with batches of 3, the last ones have 1, 2 and 3


def _first(examples: Any, index: int) -> Arrays:
    return tuple(a[: SIZES[index]] for a in examples(index))


def _few(federation: Any) -> Federation:
    """The first examples of a task's first clients."""
    made: Federation = federation()
    train = replace(
        made.train,
        ids=made.train.ids[: len(SIZES)],
        sizes=np.array(SIZES),
        examples=partial(_first, made.train.examples),
    )
    return made._replace(train=train)


def _double(prepare: Any, examples: Any, rng: Any) -> tuple[Tensor, ...]:
    return tuple(a.double() if a.is_floating_point() else a for a in prepare(examples, rng))


def task_problem(name: str, algorithm: str = "fedavg", double: bool = True, **settings: Any) -> Problem:
    config = resolve(TASKS[name], algorithm, {"client.batch_size": 3} | settings)
    problem = build_problem(TASKS[name], config)
    problem = replace(problem, federation=partial(_few, problem.federation))
    if double:
        model, prepare = problem.model, problem.prepare
        problem = replace(problem, model=lambda: model().double(), prepare=partial(_double, prepare))
    return problem


Trained = list[tuple[Outcome, tuple[Vector, ...]]]


def train(executor: Executor, problem: Problem, clients: Sequence[int], lr: float, t: int = 0) -> Trained:
    algorithm = problem.algorithm()
    sent = algorithm.sent(algorithm.init(initial_vector(problem)))
    executor.load(problem, problem.federation(), ())
    jobs = [ClientJob(Round(t, lr, 1.0, len(clients), 40), client) for client in clients]
    return [(outcome, tuple(v.clone() for v in vectors)) for outcome, vectors in executor.map(jobs, sent)]


def assert_same(expected: Trained, found: Trained, tolerance: float) -> None:
    """All numbers of all clients; vectors up to `tolerance` times their largest element."""
    assert len(expected) == len(found)
    for (one, vectors), (other, others) in zip(expected, found, strict=True):
        assert one._replace(loss=0.0, part=None) == other._replace(loss=0.0, part=None)
        assert one.loss == pytest.approx(other.loss, rel=tolerance, nan_ok=True)
        assert (one.part is None) == (other.part is None)
        assert one.part is None or other.part is None or torch.equal(one.part.rows, other.part.rows)
        for v, w in zip(vectors, others, strict=True):
            assert v.shape == w.shape
            if one.finite:
                assert float((v - w).abs().max()) <= tolerance * float(v.abs().max())


@pytest.fixture
def double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are in single precision, and refuse other models."""
    monkeypatch.setattr(Flat, "_check_parameters", lambda self: None)


# -- the seven tasks

# the task, a client rate at which its steps are large against the rounding of x, and what is different;
# layers of fewer units where a step would take seconds
CASES: dict[str, tuple[str, float, dict[str, Any]]] = {
    "emnist_cr": ("emnist_cr", 0.1, {}),
    "emnist_ae": ("emnist_ae", 10.0, {"client.epochs": 2}),
    "so_lr": ("so_lr", 100.0, {"client.epochs": 2}),
    "so_nwp": ("so_nwp", 0.3, {"weighting": "tokens", "model.units": 50}),
    "shakespeare": ("shakespeare", 1.0, {"client.drop_last": True, "model.units": 50}),
    # the loss of a batch is one number, so that batches are not filled up
    "shakespeare masked": ("shakespeare", 1.0, {"loss.masked": True, "model.units": 50}),
    "cifar10": ("cifar10", 0.03, {"model.l2": 1e-4, "client.batch_size": 2, "client.steps": 2}),
    "cifar100": ("cifar100", 0.1, {"client.batch_size": 1, "client.steps": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_unequal_clients_of_every_task_train_as_one_by_one(case: str, double_precision: None) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, **settings)
    vectorised = Vectorised()
    clients = (1, 2) if "cifar" in case else (0, 1, 2)
    expected, found = (train(place, problem, clients, lr) for place in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert_same(expected, found, 1e-11)
    assert float(found[0][1][0].abs().max()) > 0


@pytest.mark.parametrize("name", TASKS)
def test_a_step_of_every_task_in_single_precision_differs_by_rounding_alone(name: str) -> None:
    size = 1 if "cifar" in name else 3
    problem = task_problem(name, double=False, **{"client.steps": 1, "client.batch_size": size})
    vectorised = Vectorised()
    expected, found = (train(place, problem, (0, 1), CASES[name][1]) for place in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert_same(expected, found, 1e-5)


def test_bags_of_all_clients_are_padded_to_one_width(double_precision: None) -> None:
    # the whole model, not the part that is touched
    problem = task_problem("so_lr", "scaffold", **{"model.vocabulary": 1000})
    widths = {problem.federation().train.client(i)[0].shape[1] for i in range(3)}
    assert len(widths) > 1
    expected, found = (train(place, problem, (0, 1, 2), 1.0) for place in (Serial(), Vectorised()))
    assert found[0][0].part is None
    assert_same(expected, found, 1e-11)


@pytest.mark.parametrize("name", TASKS)
def test_whatever_a_stack_makes_is_made_on_its_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's `meta` device stands for those that are not here: it has shapes, and mixes with no other."""
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(2, device="meta") + torch.ones(2)
    monkeypatch.setattr(Flat, "_check_parameters", lambda self: None)  # it has no addresses
    problem = task_problem(name, double=False)
    runner, here = (_Runner(problem, problem.federation(), (), device) for device in ("meta", "cpu"))
    assert runner.stack is not None
    questions = []
    for client in range(3):
        arrays, part = runner._touched(runner.federation.train.client(client))
        at = ("", Round(0, 0.1, 1.0, 3, 3), None, part)
        inputs, targets = list(ClientWork(runner.problem, runner.flat, arrays, *at).batches())[-1]
        (plain, _) = list(ClientWork(here.problem, here.flat, arrays, *at).batches())[-1]
        runner.stack.masks.draw(plain)  # a forward pass on the CPU, with numbers
        x = torch.zeros(part.size if part else runner.flat.d, device="meta")
        questions.append(Question(x, part, inputs, targets, runner.stack.masks.draw(inputs)))
    runner.stack.learn(questions[0].inputs, questions[0].targets)
    answers = runner.stack.answers(questions)
    assert [g.shape for g, _ in answers] == [q.x.shape for q in questions]
    assert {a.device.type for answer in answers for a in answer} == {"meta"}


# -- forward passes that vmap knows


def test_an_lstm_of_plain_products_is_the_fused_one() -> None:
    layer = LSTM(5, 7, nn.init.xavier_uniform_).double()
    x = torch.rand(3, 11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    outputs, gradients = [], []
    for fused in (True, False):
        layer.fused = fused
        outputs.append(layer(x))
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), list(layer.parameters())))
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-13)


def test_whole_bags_are_the_sums_of_rows() -> None:
    model = TagRegression(vocabulary=6, tags=4).double()
    words = torch.tensor([[1, 6, 6, 0], [7, 2, 0, 0], [9, 0, 0, 0], [0, 0, 0, 0]])  # 7 and 9: beyond it
    outputs = []
    for fused in (True, False):
        model.fused = fused
        outputs.append(model(words))
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-14)


# -- algorithms


@pytest.mark.parametrize("case", small.CASES)
def test_every_algorithm_ends_where_it_ends_one_by_one(case: str) -> None:
    """Three rounds of 6 among 8 clients: most come back, with what they kept."""
    algorithm, changes = small.CASES[case]
    settings = {"data.clients": 8, "eval.sample": 8, **changes}
    vectorised = Vectorised()
    expected, found = (small.run(place, algorithm, settings) for place in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    moved = small.run(Serial(), algorithm, settings | {"client.lr": 1e-30, "rounds": 1}).x
    largest = float((expected.x - moved).abs().max())
    assert largest > 1e-4
    assert float((expected.x - found.x).abs().max()) <= 1e-4 * largest
    for one, other in zip(expected.train, found.train, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert all(one[key] == other[key] for key in one if key not in ("loss", "seconds"))


def clipped() -> Algorithm:
    """Looks at the whole vector and draws random numbers: right only if a client is by itself."""

    def client(work: Work, x: Vector) -> ClientResult:
        x_i = x
        for b in work.batches():
            g = work.gradient(x_i, b)
            noise = torch.randn(1).item() * torch.ones_like(g)
            x_i = step(x_i, -g / g.norm() + 0.01 * noise, work.round.eta_l)
        return ClientResult(((x_i - x) / work.steps,))

    return fedopt_algorithm(sgd(), sgd())._replace(client=client)


def test_an_algorithm_of_ones_own_may_look_at_the_whole_vector() -> None:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS)
    problem = build_problem(small.SMALL, config, clipped)
    vectorised = Vectorised()
    expected, found = (train(place, problem, range(6), 0.1) for place in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert_same(expected, found, 1e-5)


# -- models of one's own


def _with_batch_statistics() -> nn.Module:
    norm = nn.BatchNorm1d(small.HIDDEN, track_running_stats=False)
    return nn.Sequential(nn.Linear(small.FEATURES, small.HIDDEN), norm, nn.Tanh(), nn.Linear(small.HIDDEN, 4))


class _Tied(nn.Module):
    """A parameter in two places, one that is frozen, dropout called twice and dropout of whole features."""

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
    """Operations that vmap does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.dense = nn.LSTM(2, 3), nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense(self.dropout(self.lstm(x.view(len(x), 4, 2).transpose(0, 1))[0][-1]))
        return out


def own(model: Any, **changes: Any) -> Problem:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | changes)
    return replace(build_problem(small.SMALL, config), model=model)


@pytest.mark.parametrize("model", [_with_batch_statistics, _Tied])
@pytest.mark.parametrize("loss", ["each", "mean"])
def test_batches_of_a_model_that_nobody_vouches_for_are_not_filled_up(model: Any, loss: str) -> None:
    problem = own(model, **{"client.epochs": 2, "client.batch_size": 10})
    if loss == "mean":
        problem = replace(problem, loss=nn.functional.cross_entropy)
    vectorised = Vectorised()
    expected, found = (train(place, problem, range(8), 0.1) for place in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert_same(expected, found, 1e-4)


def test_a_model_that_cannot_be_stacked_trains_one_client_after_the_other() -> None:
    problem = own(_Recurrent)
    vectorised = Vectorised()
    expected, found = (train(place, problem, range(6), 0.1) for place in (Serial(), vectorised))
    assert "batching rule" in vectorised.fallback_reason
    assert_same(expected, found, 0.0)
    again = [
        (o, v)
        for o, v in vectorised.map([ClientJob(Round(0, 0.1, 1.0, 6, 40), 2)], (initial_vector(problem),))
    ]
    assert_same(expected[2:3], again, 0.0)


# -- the executor


@pytest.mark.parametrize(("floats", "together"), [(1, 1), (5000, 2), (1 << 20, 256)])
def test_a_small_bound_on_memory_makes_small_stacks_of_the_same_numbers(floats: int, together: int) -> None:
    problem, place = own(small.network), Vectorised(floats=floats)
    expected, found = (train(where, problem, range(6), 0.1) for where in (Serial(), place))
    assert place._runner.room(ClientJob(Round(0, 0.1, 1.0, 6, 24), 1), floats) == together
    assert_same(expected, found, 1e-5)


def test_clients_that_are_not_finite_are_left_out_alone() -> None:
    problem = replace(own(small.network), prepare=partial(small.tainted, (2, 4)))
    expected, found = (train(place, problem, range(6), 0.1) for place in (Serial(), Vectorised()))
    assert [outcome.finite for outcome, _ in found] == [True, True, False, True, False, True]
    assert_same(expected, found, 1e-5)


def test_clients_without_a_batch_are_skipped() -> None:
    problem = own(small.network, **{"client.batch_size": 20, "client.drop_last": True})
    expected, found = (train(place, problem, range(6), 0.1) for place in (Serial(), Vectorised()))
    assert {outcome.steps for outcome, _ in found} >= {0, 1}
    assert_same(expected, found, 1e-5)


@pytest.mark.parametrize("cannot", ["the loss", "the data"])
def test_an_error_names_its_client_and_leaves_no_thread(cannot: str) -> None:
    problem = replace(own(small.network), prepare=partial(small.marked, 3), loss=small.picky)
    if cannot == "the data":
        problem = replace(own(small.network), federation=partial(small.with_an_empty_client, ""))
    messages = []
    for place in (Serial(), Vectorised()):
        state = torch.get_rng_state()
        with pytest.raises(FedoptError) as caught:
            train(place, problem, range(6), 0.1)
        messages.append(str(caught.value))
        assert torch.equal(torch.get_rng_state(), state)
    assert messages[0] == messages[1]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Turn)]


def test_an_interrupted_round_leaves_no_thread_and_the_next_one_is_right() -> None:
    problem = own(small.network)
    place = Vectorised()
    expected = train(place, problem, range(6), 0.1)
    stack = place._runner.stack
    assert stack is not None
    answers, calls = stack.answers, []

    def interrupted(questions: Any) -> Any:
        calls.append(len(questions))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answers(questions)

    stack.answers = interrupted  # type: ignore[method-assign]
    algorithm = problem.algorithm()
    sent = algorithm.sent(algorithm.init(initial_vector(problem)))
    jobs = [ClientJob(Round(0, 0.1, 1.0, 6, 40), client) for client in range(6)]
    with pytest.raises(KeyboardInterrupt):
        list(place.map(jobs, sent))
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Turn)]
    stack.answers = answers  # type: ignore[method-assign]
    assert_same(expected, list(place.map(jobs, sent)), 0.0)


def test_a_run_that_is_continued_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    """To the bit, although the first client that each sees, from which room is judged, is another."""
    settings = {"data.clients": 8, "clients_per_round": 4, "client.batch_size": 30}
    straight = small.run(Vectorised(floats=7000), "scaffold", settings | {"rounds": 4})
    small.run(Vectorised(floats=7000), "scaffold", settings | {"rounds": 2}, out=tmp_path / "run")
    continued = small.run(Vectorised(floats=7000), "scaffold", settings | {"rounds": 4}, out=tmp_path / "run")
    assert torch.equal(straight.x, continued.x)
    assert straight.test[-1]["accuracy"] == continued.test[-1]["accuracy"]


# -- the device as an option

QUICK = ["--set", "data.clients=3", "--set", "clients_per_round=2", "--set", "client.steps=1"]
QUICK += ["--set", "client.batch_size=2", "--set", "eval.sample=4", "--rounds", "1"]
no_gpu = pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is another device"
)


@no_gpu
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_in_one_line(device: str, tmp_path: Path) -> None:
    done = command("run", "emnist_cr", "--device", device, "--out", tmp_path / "run", *QUICK)
    assert (done.code, done.out) == (2, "")
    assert done.err.strip() == (f"error: this machine, or its torch, has no device {device}; there is: cpu")
    assert not (tmp_path / "run").exists()


def test_a_device_that_does_not_exist_is_refused_with_those_that_do() -> None:
    done = command("compare", "emnist_cr", "--algorithms", "fedavg", "--device", "gpu")
    assert done.code == 2 and "'gpu'" in done.err and "cuda" in done.err
    with pytest.raises(fedopt.UserError, match="cuda"):
        fedopt.run("emnist_cr", device="tpu")


@no_gpu
def test_the_plain_way_records_nothing_and_the_vectorised_one_its_device() -> None:
    plain, auto, cpu, vectorised = (
        command("run", "emnist_cr", "--show-config", *words).out
        for words in ([], ["--device", "auto"], ["--device", "cpu"], ["--executor", "vectorised"])
    )
    assert plain == auto == cpu and "vectorised" not in plain
    assert set(vectorised.splitlines()) - set(plain.splitlines()) == {'vectorised = "cpu"'}


def test_a_vectorised_run_is_another_run_with_the_same_numbers_up_to_rounding(tmp_path: Path) -> None:
    out = tmp_path / "run"
    plain = command("run", "emnist_cr", "--executor", "serial", "--json", "--out", out, *QUICK)
    refused = command("run", "emnist_cr", "--executor", "vectorised", "--out", out, *QUICK)
    assert refused.code == 2 and "vectorised is None there and 'cpu' here" in refused.err
    stacked = command(
        "run", "emnist_cr", "--executor", "vectorised", "--json", "--out", tmp_path / "v", *QUICK
    )
    one, other = (json.loads(done.out) for done in (plain, stacked))
    assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    assert 'vectorised = "cpu"' in (tmp_path / "v" / "config.toml").read_text()
    measured = command("eval", tmp_path / "v", "--executor", "vectorised", "--json")
    assert measured.code == 0


def test_runs_of_a_comparison_name_the_command_that_makes_them_again(tmp_path: Path) -> None:
    done = command(
        *("compare", "emnist_cr", "--algorithms", "fedavg,fedadam", "--executor", "vectorised"),
        *("--json", "--out", tmp_path, *QUICK),
    )
    assert done.code == 0, done.err
    info = json.loads((tmp_path / "fedadam" / "run.json").read_text())
    assert "--executor vectorised" in info["command"]
    again = command(*info["command"].split()[1:])
    assert again.code == 0 and "is finished" in again.err


def test_the_library_takes_a_device_too() -> None:
    settings = {"data.clients": 3, "clients_per_round": 2, "client.steps": 1, "client.batch_size": 2}
    settings |= {"eval.sample": 4}
    one, other = (
        fedopt.run("emnist_cr", rounds=1, config=settings, executor=executor, device="cpu")
        for executor in ("serial", "vectorised")
    )
    assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)
