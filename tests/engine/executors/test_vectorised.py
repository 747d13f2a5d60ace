"""Clients that train as one stack get the results of clients that train one after the other.

Comparisons of the mathematics use double precision: a few steps then differ by about 1e-14 of an update, and
a wrong row, mask or weight is visible. In single precision one step differs by about 1e-6. Later steps can
differ more, because a pooling layer with two nearly equal pixels passes the gradient to one or the other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from own_clients import examples, make_task
from torch import Tensor, nn
from training import CASES, assert_same_cohort, task_problem, train_cohort

from fedopt.algorithms import Algorithm, ClientResult, Round, Vector, Work
from fedopt.algorithms import fedopt as fedopt_algorithm
from fedopt.algorithms.optimizers import sgd, step
from fedopt.engine.client import tensors
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.model import StackedBatch, StackedModel
from fedopt.engine.worker import ClientJob
from fedopt.errors import FedoptError
from fedopt.models.flat import Flat
from fedopt.rng import generator
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


@pytest.fixture
def double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow models in double precision."""
    monkeypatch.setattr(Flat, "_check_parameters", lambda self: None)


def compare(problem: Problem, clients: Any, lr: float, tolerance: float, **options: Any) -> Vectorised:
    """Check that the executor gives the results of `serial`, and return it."""
    vectorised = Vectorised(**options)
    expected, actual = (train_cohort(one, problem, clients, lr) for one in (Serial(), vectorised))
    assert_same_cohort(expected, actual, tolerance)
    assert float(actual.means[0].abs().max()) > 0
    return vectorised


# cifar10 has the network of cifar100 with fewer outputs.
@pytest.mark.parametrize("case", [name for name in CASES if name not in ("so_lr", "cifar10")])
def test_unequal_clients_of_every_task_equal_serial(case: str, double_precision: None) -> None:
    name, lr, settings = CASES[case]
    problem = task_problem(name, **settings)
    clients = (1, 2) if "cifar" in case else (0, 1, 2)
    assert compare(problem, clients, lr, 1e-11).fallback_reason == ""


def test_clients_with_sparse_rows_are_trained_one_after_the_other() -> None:
    executor = compare(task_problem("so_lr", double=False), (0, 1, 2), 100.0, 0.0)
    assert "rows of the model" in executor.fallback_reason


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("so_lr", "cifar10")])
def test_one_step_in_single_precision_differs_only_by_rounding(name: str) -> None:
    size = 1 if "cifar" in name else 3
    problem = task_problem(name, double=False, **{"client.steps": 1, "client.batch_size": size})
    assert compare(problem, (0, 1), CASES[name][1], 1e-5).fallback_reason == ""


def test_inputs_of_different_width_are_padded(double_precision: None) -> None:
    # SCAFFOLD trains all rows
    problem = task_problem("so_lr", "scaffold", **{"model.vocabulary": 1000})
    widths = {problem.federation().train.client(i)[0].shape[1] for i in range(3)}
    assert len(widths) > 1
    assert compare(problem, (0, 1, 2), 1.0, 1e-11).fallback_reason == ""


@pytest.mark.parametrize("name", ["emnist_cr", "emnist_ae", "so_nwp", "synthetic_mlp"])
def test_all_tensors_of_a_step_are_on_its_device(name: str, double_precision: None) -> None:
    """torch's `meta` device has shapes without values, and raises an error if it is mixed with another."""
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(2, device="meta") + torch.ones(2)
    problem = task_problem(name, double=False)
    arrays = problem.federation().train.client(2)
    inputs, targets = problem.prepare(tensors(arrays, slice(None)), generator(0))
    model = StackedModel(problem, "meta")
    masks = tuple(torch.stack([mask, mask]) for mask in model.masks.draw(inputs))
    batch = StackedBatch(
        torch.stack([inputs, inputs]), torch.stack([targets, targets]), torch.tensor([3.0, 2.0]), masks
    )
    x = torch.zeros(2, model.flat.d, device="meta")
    result = model.gradient(x, batch.to(x.device))
    assert result.value.shape == x.shape
    assert result.errors is None  # the rows of these losses are independent
    assert result.value.device.type == result.losses.device.type == "meta"


@pytest.mark.parametrize("case", small.CASES)
def test_every_algorithm_equals_serial(case: str) -> None:
    """Three rounds with 6 of 8 clients of different sizes: most take part again, with their kept vectors."""
    algorithm, changes = small.CASES[case]
    settings = {"data.clients": 8, "eval.sample": 8, **changes}
    vectorised = Vectorised()
    expected, actual = (small.run(executor, algorithm, settings) for executor in (Serial(), vectorised))
    assert (vectorised.fallback_reason == "") == (case != "centralized")
    start = small.run(Serial(), algorithm, settings | {"client.lr": 1e-30, "rounds": 1}).x
    largest = float((expected.x - start).abs().max())
    assert largest > 1e-4
    assert float((expected.x - actual.x).abs().max()) <= 1e-5 * largest
    for one, other in zip(expected.train, actual.train, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert all(one[key] == other[key] for key in one if key not in ("loss", "seconds"))


OPTIMIZERS = {
    "sgdm": {},
    "sgdm with the rate in m": {"client.optimizer": "sgdm", "client.fold_rate": True},
    "adagrad": {},
    "yogi": {},
    "amsgrad": {},
    "adabound": {},
}


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_every_client_optimizer_equals_serial(case: str) -> None:
    changes = {"client.optimizer": case} | OPTIMIZERS[case]
    problem = small.problem(changes | {"client.epochs": 2}, "fedprox")
    executor = compare(problem, range(8), 0.05, 1e-5)
    assert executor.fallback_reason == ""


@pytest.mark.parametrize(
    "settings",
    [
        {"client.drop_last": True, "client.batch_size": 12},
        {"client.steps": 7, "client.batch_size": 6},
        {"client.steps": 4, "client.batch_size": 6, "client.drop_last": True},
        {"client.epochs": 3, "client.batch_size": 1000},
        {"weighting": "uniform"},
        {"weighting": "processed", "client.epochs": 2},
        {"loss.reduction": "sum", "client.epochs": 2},
    ],
    ids=str,
)
def test_local_work_and_weights_equal_serial(settings: dict[str, Any]) -> None:
    problem = small.problem(settings)
    assert compare(problem, range(12), 0.02, 1e-5).fallback_reason == ""


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


def test_own_algorithm_is_trained_one_client_after_the_other() -> None:
    config = resolve(small.SMALL, "fedavg", small.SETTINGS)
    executor = compare(build_problem(small.SMALL, config, noisy), range(6), 0.1, 0.0)
    assert "algorithm" in executor.fallback_reason


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
    return replace(small.problem(changes), model=model)


def _weighted_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean with class weights: it is not the mean of the losses of single examples."""
    return nn.functional.cross_entropy(outputs, targets, torch.tensor([1.0, 2.0, 3.0, 4.0]))


@pytest.mark.parametrize("model", [_with_batch_statistics, _Tied, small.network])
@pytest.mark.parametrize("loss", [small.SMALL.loss, nn.functional.cross_entropy, _weighted_mean])
def test_batches_are_padded_only_where_this_is_exact(model: Any, loss: Any) -> None:
    problem = with_model(model, **{"client.epochs": 2, "client.batch_size": 10})
    executor = compare(replace(problem, loss=loss), range(8), 0.1, 1e-4)
    assert executor.fallback_reason == ""
    rows = {small.SMALL.loss: "each", nn.functional.cross_entropy: "mean", _weighted_mean: "batch"}[loss]
    assert executor._worker.plan.row_losses == ("batch" if model is _with_batch_statistics else rows)


def _ignores_some(clients: int, examples: tuple[Tensor, ...], augment: Any) -> Any:
    """Mark a label of one client as ignored, which changes the denominator of the mean."""
    inputs, targets = small.prepare(examples, augment)
    return inputs, torch.where(examples[2] == clients, torch.where(targets == 0, -100, targets), targets)


def test_block_whose_loss_is_no_mean_of_rows_is_trained_one_after_the_other() -> None:
    """The largest client, which decides about padding, has no ignored label."""
    problem = with_model(small.network, **{"client.batch_size": 4})
    problem = replace(problem, prepare=partial(_ignores_some, 3), loss=nn.functional.cross_entropy)
    executor = compare(problem, range(6), 0.1, 1e-5)
    assert "mean of the losses" in executor.fallback_reason


def _uniform_largest(examples: tuple[Tensor, ...], augment: Any) -> Any:
    """Give all examples of the largest client, which decides about padding, the same label."""
    inputs, targets = small.prepare(examples, augment)
    largest = int(small.sizes(24).argmax())
    return inputs, torch.where(examples[2] == largest, 0, targets)


def _normalized_weights(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss for each example that depends on the labels of the other examples."""
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])[targets]
    return small.SMALL.loss(outputs, targets) * weights / weights.mean()


@pytest.mark.parametrize("model", [small.network, small.undecided])
@pytest.mark.parametrize("batch_size", [8, 40])
@pytest.mark.parametrize(
    ("loss", "reason"), [(_weighted_mean, "mean of the losses"), (_normalized_weights, "other examples")]
)
def test_dependent_losses_are_found_in_padded_batches(
    model: Any, loss: Any, batch_size: int, reason: str
) -> None:
    """Class weights do not matter in the largest client. All losses of the undecided model are equal at x_0.

    No client but the largest one has a full batch of 40.
    """
    problem = with_model(model, **{"client.batch_size": batch_size, "client.steps": 1})
    problem = replace(problem, prepare=_uniform_largest, loss=loss)
    executor = compare(problem, range(6), 0.1, 1e-5)
    assert executor._worker.plan.row_losses != "batch"
    assert reason in executor.fallback_reason


def test_model_that_vmap_does_not_support_falls_back() -> None:
    executor = compare(with_model(_Recurrent), range(6), 0.1, 0.0)
    assert "batching rule" in executor.fallback_reason


@pytest.mark.parametrize(("floats", "blocks"), [(1, [1] * 7), (12_000, [3, 3, 1]), (1 << 20, [7])])
def test_memory_limit_bounds_the_block_size(floats: int, blocks: list[int]) -> None:
    problem = with_model(small.network)
    executor = compare(problem, range(7), 0.1, 1e-5, floats=floats)
    jobs = [ClientJob(Round(0, 0.1, 1.0, 7, 24), client) for client in range(7)]
    assert [len(block) for block, _ in executor._worker.blocks(jobs)] == blocks


def _own_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("loss", [small.SMALL.loss, nn.functional.cross_entropy, _own_cross_entropy])
def test_non_finite_clients_do_not_affect_others(loss: Any) -> None:
    problem = replace(with_model(small.network), prepare=partial(small.tainted, (2, 4)), loss=loss)
    vectorised = Vectorised()
    expected, actual = (train_cohort(one, problem, range(6), 0.1) for one in (Serial(), vectorised))
    assert vectorised.fallback_reason == ""
    assert [report.finite for report in actual.reports] == [True, True, False, True, False, True]
    assert_same_cohort(expected, actual, 1e-5)


def test_test_loss_of_a_weighted_mean_equals_serial() -> None:
    """The loss of 250 test examples is the mean over batches of 100, on every executor."""

    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, torch.tensor([1.0, 5.0, 25.0]))

    task = make_task(loss=weighted, test=examples("test", 250))
    settings = {"client.lr": 1e-30, "rounds": 1}
    serial, vectorised = (small.run(one, settings=settings, task=task) for one in (Serial(), Vectorised()))
    assert serial.test[-1]["loss"] == pytest.approx(vectorised.test[-1]["loss"], rel=1e-6)


def test_vectorised_skips_clients_without_a_batch() -> None:
    problem = with_model(small.network, **{"client.batch_size": 20, "client.drop_last": True})
    expected, actual = (train_cohort(one, problem, range(6), 0.1) for one in (Serial(), Vectorised()))
    assert {report.steps for report in actual.reports} >= {0, 1}
    assert_same_cohort(expected, actual, 1e-5)


@pytest.mark.parametrize("failing", ["loss", "data"])
def test_error_names_its_client(failing: str) -> None:
    problem = replace(with_model(small.network), prepare=partial(small.marked, 3), loss=small.picky)
    if failing == "data":
        problem = replace(with_model(small.network), federation=partial(small.with_an_empty_client, ""))
    messages = []
    for executor in (Serial(), Vectorised()):
        state = torch.get_rng_state()
        with pytest.raises(FedoptError) as caught:
            train_cohort(executor, problem, range(6), 0.1)
        messages.append(str(caught.value))
        assert torch.equal(torch.get_rng_state(), state)
    assert messages[0] == messages[1]


def test_resumed_vectorised_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    """Equal to the bit, with several blocks."""
    settings = {"data.clients": 8, "clients_per_round": 4, "client.batch_size": 30}
    options = {"floats": 12_000}
    uninterrupted = small.run(Vectorised(**options), "scaffold", settings | {"rounds": 4})
    small.run(Vectorised(**options), "scaffold", settings | {"rounds": 2}, out=tmp_path / "run")
    executor = Vectorised(**options)
    resumed = small.run(executor, "scaffold", settings | {"rounds": 4}, out=tmp_path / "run")
    assert executor._worker.stack_size() == 2
    assert torch.equal(uninterrupted.x, resumed.x)
    assert uninterrupted.test[-1]["accuracy"] == resumed.test[-1]["accuracy"]


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_number_of_workers_does_not_change_results(algorithm: str) -> None:
    """Equal to the bit, with four blocks of two clients, and clients that return with kept vectors."""
    settings = {"data.clients": 10, "clients_per_round": 8, "rounds": 2}
    one, two = (Vectorised(floats=12_000, workers=workers) for workers in (1, 2))
    try:
        expected, actual = (small.run(executor, algorithm, settings) for executor in (one, two))
        assert len(two.pids) == 2 and one.pids == []
    finally:
        two.close()
    assert torch.equal(expected.x, actual.x)
    assert [line["loss"] for line in expected.train] == [line["loss"] for line in actual.train]
