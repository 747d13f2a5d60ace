"""One round: cohort, mean, server step, rejected clients, transferred bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from small import run_round
from splits import from_arrays
from torch import nn

from fedopt.algorithms import Algorithm, ClientResult, Optimizer, Round, fedopt, sgd
from fedopt.engine.client import ClientWork
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.executors.serial import Serial
from fedopt.engine.loop import TrainingSetup
from fedopt.engine.problem import LocalWork
from fedopt.engine.sampling import as_run, uniform
from fedopt.engine.worker import ClientJob
from fedopt.errors import ModelError

COHORT = [
    461,
    105,
    438,
    5,
    437,
    308,
    146,
    6,
    21,
    355,
]  # the authors' cohort in round 1 of 500 clients, seed 1


class RecordingExecutor(Serial):
    """Records the clients of a round."""

    def map(self, jobs: Any, sent: Any, kept: Any = lambda index: None) -> Any:
        self.clients = [job.client for job in jobs if isinstance(job, ClientJob)]
        return super().map(jobs, sent, kept)


def test_round_trains_the_sampled_clients_largest_first():
    executor = RecordingExecutor()
    setup, x = small.setup(executor, settings={"data.clients": 500, "client.steps": 1})
    setup = replace(setup, sampler=as_run, cohort=10, seed=1)
    run_round(setup, setup.algorithm.init(x), 1, 0.1, 1.0)
    assert sorted(executor.clients) == sorted(COHORT)
    assert list(small.sizes(500)[executor.clients]) == sorted(small.sizes(500)[executor.clients])[::-1]


def count_tokens(examples: tuple[torch.Tensor, ...]) -> int:
    return int((examples[0] > 0).sum())


def size_as_delta() -> Algorithm:
    """Each client processes its batches and returns its number of examples in every coordinate."""

    def client(work: ClientWork, x: torch.Tensor) -> ClientResult:
        for batch in work.batches():
            work.gradient(x, batch)
        return ClientResult((torch.full_like(x, len(work._arrays[0])),))

    def server(state: Any, mean: Any, round: Round) -> Any:
        return state._replace(x=state.x + mean[0])

    return Algorithm(fedopt(sgd(), sgd()).init, client, server)


@pytest.mark.parametrize(
    ("weighting", "mean"),
    [
        ("examples", (9 * 9 + 15 * 15 + 31 * 31) / (9 + 15 + 31)),
        ("uniform", (9 + 15 + 31) / 3),
        ("processed", (16 * 9 + 16 * 15 + 48 * 31) / (16 + 16 + 48)),  # two epochs without short batches
        ("tokens", (9 * 2 * 9 + 15 * 0 * 15 + 31 * 5 * 31) / (9 * 2 + 31 * 5)),
    ],
)
def test_weightings_of_clients(weighting: str, mean: float):
    """Three clients of 9, 15 and 31 examples with 2, 0 and 5 tokens in each."""
    arrays = {}
    for name, n, tokens in (("a", 9, 2), ("b", 15, 0), ("c", 31, 5)):
        inputs = np.zeros((n, small.FEATURES), np.float32)
        inputs[:, :tokens] = 1
        arrays[name] = (inputs, np.zeros(n, np.int64))
    split = from_arrays(arrays)
    test = from_arrays({"t": arrays["a"]})
    federation = small.federation("own")._replace(train=split, test=test)
    problem = replace(
        small.problem(),
        federation=lambda: federation,
        algorithm=size_as_delta,
        local=LocalWork(8, epochs=2, drop_last=True),
        weighting=weighting,
        tokens=count_tokens,
    )
    executor = Serial()
    executor.load(problem, federation, test.client(0))
    algorithm = size_as_delta()
    setup = TrainingSetup(algorithm, executor, split, uniform, 3, 0, MemoryTable())
    x = torch.zeros(small.D)
    state, report = run_round(setup, algorithm.init(x), 0, 0.1, 1.0)
    assert_allclose(state.x.numpy(), mean, rtol=1e-6)
    assert report.examples == 16 + 16 + 48


def test_fedavg_with_rate_one_averages_models():
    """By hand with torch.optim.SGD: three rounds of three full-batch epochs on every client."""
    settings = {"client.batch_size": 64, "client.epochs": 3, "model.dropout": 0.0, "data.clients": 6}
    setup, x = small.setup(settings=settings)
    clients = [small.federation("own", clients=6).train.client(i) for i in range(6)]
    weights = np.array([len(arrays[0]) for arrays in clients])
    module, state = small.network(dropout=0.0), setup.algorithm.init(x)
    for t in range(3):
        models, losses = [], []
        for inputs, labels, _ in clients:
            nn.utils.vector_to_parameters(x.clone(), module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
            for _ in range(3):
                loss = F.cross_entropy(module(torch.from_numpy(inputs)), torch.from_numpy(labels))
                losses.append((len(labels), loss.item()))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            models.append(nn.utils.parameters_to_vector(module.parameters()).detach().double().numpy())
        x = torch.from_numpy(np.average(models, axis=0, weights=weights)).float()
        state, report = run_round(setup, state, t, 0.2, 1.0)
        assert_allclose(state.x.numpy(), x.numpy(), atol=1e-6, rtol=0)
        by_hand = sum(n * loss for n, loss in losses) / sum(n for n, _ in losses)
        assert report.loss == pytest.approx(by_hand, abs=1e-6)
        assert report.examples == 3 * weights.sum()


def with_nan_inputs(*clients: int) -> Any:
    return replace(small.SMALL, prepare=partial(small.tainted, clients))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedyogi", "scaffold"])
def test_non_finite_client_is_rejected_with_its_weight(algorithm: str):
    """The result equals that of a federation without this client."""
    setup, x = small.setup(None, algorithm, {"data.clients": 7}, task=with_nan_inputs(6), cohort=7)
    state, report = run_round(setup, setup.algorithm.init(x), 0, 0.1, 0.5)
    smaller, _ = small.setup(None, algorithm, {"data.clients": 6}, cohort=6)
    expected, _ = run_round(smaller, smaller.algorithm.init(x), 0, 0.1, 0.5)
    assert torch.equal(state.x, expected.x)
    assert (report.clients, report.rejected, report.skipped) == (6, ("c06",), 0)
    assert report.loss is not None and math.isfinite(report.loss)
    rows = [i for i in range(7) if setup.table.read(i) is not None]
    assert rows == (list(range(6)) if algorithm == "scaffold" else [])


@pytest.mark.parametrize("algorithm", ["fedavg", "fedavgm", "fedyogi", "scaffold"])
def test_round_without_finite_clients_changes_nothing(algorithm: str):
    setup, x = small.setup(None, algorithm, task=with_nan_inputs(*range(24)))
    before = setup.algorithm.init(x)
    after, report = run_round(setup, before, 0, 0.1, 0.5)
    assert after is before
    assert (report.clients, len(report.rejected), report.loss) == (0, 6, None)
    assert all(setup.table.read(i) is None for i in range(24))


@pytest.mark.parametrize(("algorithm", "batch", "skipped"), [("scaffold", 1, 0), ("fedavg", 10, 3)])
def test_overflowing_server_step_changes_nothing(algorithm: str, batch: int, skipped: int):
    """Of seven clients, three have fewer examples than a batch of 10 and are skipped."""
    assert list(small.sizes(7)) == [5, 16, 27, 7, 18, 29, 9]
    settings = {"data.clients": 7, "client.drop_last": True, "client.batch_size": batch, "client.steps": 1}
    setup, x = small.setup(None, algorithm, settings, cohort=7)
    before = setup.algorithm.init(x)
    after, report = run_round(setup, before, 0, 100.0, 3e38)
    assert after is before
    assert report.loss is None
    assert all(setup.table.read(i) is None for i in range(7))
    assert (report.clients, report.skipped) == (0, skipped)
    assert len(report.rejected) == 7 - skipped


def vectors_of(state: Any) -> list[torch.Tensor]:
    """Return the vectors of a nested state."""
    return [state] if isinstance(state, torch.Tensor) else sum((vectors_of(value) for value in state), [])


@pytest.mark.parametrize("algorithm", ["fedadagrad", "fedadam", "fedyogi"])
def test_overflowing_accumulator_does_not_stop_training(algorithm: str):
    """delta = 1e20, so delta^2 overflows. With v = inf, every later step would be zero."""
    setup, x = small.setup(None, algorithm, {"client.steps": 1})
    state, _ = run_round(setup, setup.algorithm.init(x), 0, 1e21, 0.1)
    assert all(torch.isfinite(v).all() for v in vectors_of(state))
    after, _ = run_round(setup, state, 1, 0.1, 0.1)
    assert not torch.equal(after.x, state.x), "training continues"


def test_clients_smaller_than_a_batch_are_skipped_with_drop_last():
    settings = {"data.clients": 7, "client.drop_last": True, "client.batch_size": 10}
    setup, x = small.setup(settings=settings, cohort=7)
    state, report = run_round(setup, setup.algorithm.init(x), 0, 0.1, 1.0)
    assert (report.clients, report.skipped, report.rejected) == (4, 3, ())
    assert report.examples == 10 + 20 + 10 + 20
    assert (report.bytes_down, report.bytes_up) == (7 * 4 * small.D, 4 * 4 * small.D)


@pytest.mark.parametrize(
    ("case", "vectors"),
    [
        ("fedavg", 1),
        ("fedavgm", 1),
        ("fedadagrad", 1),
        ("fedadam", 1),
        ("fedyogi", 1),
        ("fedprox", 1),
        ("lookahead", 1),
        ("scaffold", 2),
        ("adaalter", 2),
        ("lookahead average", 2),
    ],
)
def test_transfer_is_four_bytes_per_parameter_client_and_vector(case: str, vectors: int):
    algorithm, settings = small.CASES[case]
    result = small.run(None, algorithm, settings)
    one_way = 4 * (8 * 16 + 16 + 16 * 4 + 4) * 6 * vectors
    assert [line["bytes_down"] for line in result.train] == [one_way] * 3
    assert [line["bytes_up"] for line in result.train] == [one_way] * 3
    assert [line["bytes_total"] for line in result.train] == [2 * one_way, 4 * one_way, 6 * one_way]


@pytest.mark.parametrize("change", [lambda x: x[:5], torch.Tensor.double], ids=["shape", "type"])
def test_server_that_changes_the_form_of_x_is_refused(change: Any) -> None:
    def update(x: Any, delta: Any, eta: float, t: int, state: Any) -> Any:
        return change(x + eta * delta), state

    setup, x = small.setup(Serial())
    setup = replace(setup, algorithm=fedopt(sgd(), Optimizer(update)))
    with pytest.raises(ModelError) as error:
        run_round(setup, setup.algorithm.init(x), 0, 0.1, 1.0)
    assert error.value.what == "server" and "returned x with shape" in str(error.value)
