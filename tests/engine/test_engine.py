"""A round, piece by piece: sampling, local work, the mean, what is left out, evaluation, the books."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import nn

from fedopt.algorithms import Algorithm, ClientResult, Round, fedopt, sgd
from fedopt.algorithms.schedules import constant
from fedopt.data import from_arrays
from fedopt.engine.aggregate import BLOCK, BlockedMean
from fedopt.engine.client import ClientWork
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.evaluate import fixed_sample, is_evaluated, measure_sample, sample_size
from fedopt.engine.executors.base import Serial
from fedopt.engine.loop import Plan, start, train
from fedopt.engine.problem import LocalWork, Problem
from fedopt.engine.round import Setting, run_round
from fedopt.engine.sampling import SAMPLERS, as_run, uniform
from fedopt.engine.worker import ClientJob, initial_vector
from fedopt.models.flat import Flat
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

quick = settings(deadline=None, derandomize=True, max_examples=60)


def problem(settings: dict[str, Any] | None = None, task: Any = small.SMALL) -> Problem:
    return build_problem(task, resolve(task, "fedavg", small.SETTINGS | (settings or {})))


# The mean


@quick
@given(st.integers(1, 32), st.integers(0, 2**32 - 1))
def test_the_blocked_mean_is_the_weighted_mean(clients: int, seed: int):
    draw = np.random.default_rng(seed)
    weights = draw.uniform(0.1, 500, clients)
    vectors = draw.uniform(-1, 1, (clients, 2, 7)).astype(np.float32)
    mean = BlockedMean()
    for weight, pair in zip(weights, vectors, strict=True):
        mean.add(float(weight), [torch.from_numpy(v) for v in pair])
    value = mean.value()
    assert value is not None and len(value) == 2
    for got, column in zip(value, vectors.swapaxes(0, 1).astype(np.float64), strict=True):
        assert_allclose(got.numpy(), np.average(column, axis=0, weights=weights), atol=1e-6, rtol=0)


@quick
@given(st.lists(st.integers(1, 600), min_size=1, max_size=40), st.integers(-(2**10), 2**10))
def test_weights_sum_to_one_so_a_constant_stays_itself(weights: list[int], eighths: int):
    """Products and sums of these numbers are exact in float32, so the mean must be too."""
    mean = BlockedMean()
    for weight in weights:
        mean.add(float(weight), [torch.full((3,), eighths / 8)])
    assert torch.equal(mean.value()[0], torch.full((3,), eighths / 8))
    assert (mean.weight, mean.count) == (sum(weights), len(weights))


def summed_by_hand(weight: float, blocks: list[list[torch.Tensor]]) -> torch.Tensor:
    """Each block by itself from its first client on, then the blocks one by one."""
    total = None
    for block in blocks:
        part = weight * block[0]
        for v in block[1:]:
            part = part + weight * v
        total = part if total is None else total + part
    return total


def test_clients_are_added_in_blocks_of_eight_and_the_blocks_in_order():
    assert BLOCK == 8
    vectors = list(torch.rand(21, 50, generator=torch.Generator().manual_seed(0)) * 1000)
    mean = BlockedMean()
    for v in vectors:
        mean.add(4.0, [v])
    expected = summed_by_hand(4.0, [vectors[:8], vectors[8:16], vectors[16:]]) / 84
    assert torch.equal(mean.value()[0], expected)
    assert not torch.equal(summed_by_hand(4.0, [vectors]) / 84, expected), "the order matters here"


@pytest.mark.parametrize("out", [0, 3, 7, 8, 15, 19])
def test_a_client_left_out_keeps_its_place_so_that_the_blocks_of_the_others_stay(out: int):
    vectors = list(torch.rand(20, 50, generator=torch.Generator().manual_seed(1)) * 1000)
    mean = BlockedMean()
    for i, v in enumerate(vectors):
        mean.skip() if i == out else mean.add(4.0, [v])
    blocks = [[vectors[i] for i in range(a, min(a + 8, 20)) if i != out] for a in (0, 8, 16)]
    assert torch.equal(mean.value()[0], summed_by_hand(4.0, blocks) / 76)
    assert (mean.weight, mean.count) == (76, 19)


def test_a_mean_of_nobody_is_none():
    mean = BlockedMean()
    for _ in range(9):
        mean.skip()
    assert mean.value() is None


# Sampling


def test_uniform_sampling_is_without_replacement_and_gives_every_client_the_same_chance():
    n, k, rounds = 20, 5, 4000
    cohorts = [uniform(11, t, n, k) for t in range(rounds)]
    assert all(len(set(cohort)) == k and set(cohort) <= set(range(n)) for cohort in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=n)
    p = k / n
    statistic = ((counts - rounds * p) ** 2).sum() / (rounds * p * (1 - p)) * (n - 1) / n
    assert 4.91 < statistic < 43.8, "chi-square with 19 degrees of freedom: 0.05 % and 99.9 %"


def test_rounds_are_sampled_independently():
    """|S_t and S_{t+1} in common| is hypergeometric: mean k^2/N = 1.25, variance 0.740."""
    n, k, rounds = 20, 5, 4000
    cohorts = [set(uniform(12, t, n, k)) for t in range(rounds + 1)]
    common = np.mean([len(a & b) for a, b in zip(cohorts, cohorts[1:], strict=False)])
    assert abs(common - 1.25) < 4 * math.sqrt(0.740 / rounds)
    assert len({frozenset(cohort) for cohort in cohorts}) > 3000


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_round_can_be_sampled_without_those_before_it(name: str):
    sampler = SAMPLERS[name]
    forward = [sampler(5, t, 50, 7) for t in range(20)]
    assert [sampler(5, t, 50, 7) for t in reversed(range(20))] == forward[::-1]
    assert forward != [sampler(6, t, 50, 7) for t in range(20)]


AS_RUN = [  # facts.md, A: the authors' sequence, seed 1, recorded from their generator
    (500, 0, [410, 254, 310, 381, 147, 25, 137, 22, 112, 207]),
    (500, 1, [461, 105, 438, 5, 437, 308, 146, 6, 21, 355]),
    (3400, 0, [898, 2724, 3285, 2302, 3181, 1947, 142, 3103, 1777, 3098]),
    (715, 0, [197, 651, 377, 206, 561, 662, 526, 73, 121, 382]),
]


@pytest.mark.parametrize(("population", "t", "cohort"), AS_RUN)
def test_as_run_sampling_is_the_sequence_of_the_authors(population: int, t: int, cohort: list[int]):
    assert as_run(1, t, population, 10) == cohort


def test_positions_are_those_of_the_ids_sorted_as_strings():
    """facts.md, A: the first three clients of round 0 among 500 are '468', '327' and '378'."""
    split = from_arrays({str(i): [np.zeros(1), np.zeros(1)] for i in range(500)})
    assert [split.ids[i] for i in as_run(1, 0, 500, 3)] == ["468", "327", "378"]


class Watched(Serial):
    """Notes which clients were asked for."""

    def map(self, jobs: Any, sent: Any, kept: Any = lambda index: None) -> Any:
        self.asked = [job.client for job in jobs if isinstance(job, ClientJob)]
        return super().map(jobs, sent, kept)


def test_a_round_trains_the_sampled_clients_the_largest_first():
    executor = Watched()
    made, x = small.setting(executor, settings={"data.clients": 500, "client.steps": 1})
    made = replace(made, sampler=as_run, cohort=10, seed=1)
    run_round(made, made.algorithm.init(x), 1, 0.1, 1.0)
    assert sorted(executor.asked) == sorted(AS_RUN[1][2])
    assert list(small.sizes(500)[executor.asked]) == sorted(small.sizes(500)[executor.asked])[::-1]


# Local work


def client_work(local: LocalWork, n: int, seed: int = 0, t: int = 0, client: str = "a") -> ClientWork:
    """A client whose targets are the numbers of its examples."""
    made = replace(problem(), local=local, seed=seed)
    arrays = (np.zeros((n, small.FEATURES), np.float32), np.arange(n))
    return ClientWork(made, Flat(small.network()), arrays, client, Round(t, 0.1, 1.0, 1, 1), None)


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
def test_epochs_steps_and_the_last_short_batch(local: LocalWork, n: int, expected: list[int]):
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


def test_every_epoch_round_and_client_is_shuffled_anew():
    whole = LocalWork(30, epochs=2)
    first, second = orders(client_work(whole, 30))
    others = [orders(client_work(whole, 30, **change))[0] for change in ({"t": 1}, {"client": "b"})]
    everything = [list(range(30)), first, second, *others]
    assert len({tuple(order) for order in everything}) == 5
    assert orders(client_work(whole, 30)) == [first, second]


def test_the_gradient_is_that_of_the_mean_or_of_the_sum_over_the_batch():
    inputs, targets, _ = map(torch.from_numpy, small.cloud("train", 7, 0))
    module = small.network(dropout=0.0)
    F.cross_entropy(module(inputs), targets, reduction="sum").backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    flat = Flat(copy.deepcopy(module))
    for reduction, factor in (("sum", 1.0), ("mean", 1 / 7)):
        made = replace(problem(), reduction=reduction)
        work = ClientWork(made, flat, (inputs.numpy(),), "a", Round(0, 0.1, 1.0, 1, 1), None)
        assert_allclose(
            work.gradient(flat.read(), (inputs, targets)), expected * factor, rtol=1e-5, atol=1e-6
        )


def count_tokens(examples: tuple[torch.Tensor, ...]) -> int:
    return int((examples[0] > 0).sum())


def size_as_delta() -> Algorithm:
    """Works through its batches, and returns the number of its examples in every place."""

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
def test_weightings(weighting: str, mean: float):
    """Three clients of 9, 15 and 31 examples with 2, 0 and 5 tokens in each."""
    arrays = {}
    for name, n, tokens in (("a", 9, 2), ("b", 15, 0), ("c", 31, 5)):
        inputs = np.zeros((n, small.FEATURES), np.float32)
        inputs[:, :tokens] = 1
        arrays[name] = (inputs, np.zeros(n, np.int64))
    split = from_arrays(arrays)
    test = from_arrays({"t": arrays["a"]})
    federation = small.federation("own")._replace(train=split, test=test)
    made = replace(
        problem(),
        federation=lambda: federation,
        algorithm=size_as_delta,
        local=LocalWork(8, epochs=2, drop_last=True),
        weighting=weighting,
        tokens=count_tokens,
    )
    executor = Serial()
    executor.load(made, made.federation(), test.client(0))
    algorithm = size_as_delta()
    setting = Setting(algorithm, executor, split, uniform, 3, 0, MemoryTable())
    x = torch.zeros(small.D)
    state, report = run_round(setting, algorithm.init(x), 0, 0.1, 1.0)
    assert_allclose(state.x.numpy(), mean, rtol=1e-6)
    assert report.examples == 16 + 16 + 48


def test_fedopt_with_sgd_twice_and_rate_one_is_model_averaging():
    """By hand with torch.optim.SGD: three rounds of three full-batch epochs on every client."""
    settings = {"client.batch_size": 64, "client.epochs": 3, "model.dropout": 0.0, "data.clients": 6}
    made, x = small.setting(settings=settings)
    clients = [small.federation("own", clients=6).train.client(i) for i in range(6)]
    weights = np.array([len(arrays[0]) for arrays in clients])
    module, state = small.network(dropout=0.0), made.algorithm.init(x)
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
        state, report = run_round(made, state, t, 0.2, 1.0)
        assert_allclose(state.x.numpy(), x.numpy(), atol=1e-6, rtol=0)
        by_hand = sum(n * loss for n, loss in losses) / sum(n for n, _ in losses)
        assert report.loss == pytest.approx(by_hand, abs=1e-6)
        assert report.examples == 3 * weights.sum()


# Seeds


def test_the_seed_decides_the_initial_weights():
    first, again, other = (initial_vector(problem({"seed": s})) for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_the_seed_decides_the_cohort():
    first, again, other = ([uniform(s, t, 100, 10) for t in range(5)] for s in (1, 1, 2))
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_the_seed_decides_the_shuffle():
    first, again, other = (orders(client_work(LocalWork(50), 50, seed=s)) for s in (1, 1, 2))
    assert first == again != other


def identical_examples(dropout: float, seed: int, t: int = 0) -> torch.Tensor:
    """x after one client's step on copies of one example: only dropout is left to chance."""
    arrays = (np.ones((20, small.FEATURES), np.float32), np.ones(20, np.int64), np.zeros(20))
    split = from_arrays({"a": arrays})
    federation = small.federation("own")._replace(train=split)
    made = replace(problem({"seed": seed, "model.dropout": dropout}), federation=lambda: federation)
    executor = Serial()
    executor.load(made, made.federation(), arrays)
    setting = Setting(made.algorithm(), executor, split, uniform, 1, seed, MemoryTable())
    x = torch.linspace(-1, 1, small.D)
    return run_round(setting, setting.algorithm.init(x), t, 0.1, 1.0)[0].x


def test_the_seed_and_the_round_decide_dropout():
    first = identical_examples(0.5, seed=1)
    assert torch.equal(first, identical_examples(0.5, seed=1))
    assert not torch.equal(first, identical_examples(0.5, seed=2))
    assert not torch.equal(first, identical_examples(0.5, seed=1, t=1))
    assert torch.equal(identical_examples(0.0, seed=1), identical_examples(0.0, seed=2)), "nothing else"


def test_the_generator_for_augmentation_differs_by_seed_round_client_and_epoch():
    drawn = []

    def prepare(examples: Any, augment: np.random.Generator) -> Any:
        drawn.append(float(augment.random()))
        return examples[0], examples[1]

    for change in ({}, {"seed": 1}, {"t": 1}, {"client": "b"}):
        work = client_work(LocalWork(10, epochs=2), 10, **change)
        work._problem = replace(work._problem, prepare=prepare)
        list(work.batches())
    assert len(set(drawn)) == len(drawn) == 8


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    first, again, other = (small.run(settings={"seed": s}) for s in (1, 1, 2))
    assert first.x_sha256 == again.x_sha256 != other.x_sha256
    assert [line["loss"] for line in first.train] == [line["loss"] for line in again.train]


@pytest.mark.parametrize("fails", [False, True])
def test_a_serial_run_leaves_the_users_generator_and_threads_alone(fails: bool):
    task = replace(small.SMALL, prepare=partial(small.marked, 3), loss=small.picky) if fails else small.SMALL
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.manual_seed(123)
        before = torch.get_rng_state()
        with np.errstate(all="raise"):
            try:
                small.run(task=task, settings={"clients_per_round": 24, "rounds": 1})
            except Exception:
                assert fails
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_users_generator_and_threads_do_not_change_a_run():
    expected = small.run().x_sha256
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.manual_seed(99)
        torch.rand(7)
        assert small.run().x_sha256 == expected
    finally:
        torch.set_num_threads(threads)


# Alignment


def shifted(values: Any, floats: int) -> Any:
    """The same numbers in memory that begins `floats` floats after a multiple of 64 bytes."""
    if isinstance(values, torch.Tensor):
        buffer = torch.empty(len(values) + 32)
        first = floats + (-buffer.data_ptr() % 64) // 4
        view = buffer[first : first + len(values)]
        view.copy_(values)
        assert view.data_ptr() % 64 == 4 * floats
        return view
    room = np.empty(values.nbytes + 128, np.uint8)
    first = 4 * floats + -room.ctypes.data % 64
    array = room[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


class ShiftedTable(MemoryTable):
    floats = 0

    def read(self, client: int) -> Any:
        row = super().read(client)
        return None if row is None else tuple(shifted(v, self.floats) for v in row)


@pytest.mark.parametrize("algorithm", ["scaffold", "fedyogi", "adaalter"])
def test_a_round_gives_the_same_bits_wherever_its_vectors_and_data_lie(algorithm: str):
    """One to three examples at a time: such products are known to depend on alignment (MKL, AVX2)."""
    settings = {"model.hidden": 33, "model.features": 30, "client.batch_size": 1, "client.steps": 5}
    config = resolve(small.SMALL, algorithm, small.SETTINGS | settings | {"data.clients": 6})
    plain = build_problem(small.SMALL, config)
    train_split = plain.federation().train
    wide = [np.tile(train_split.client(i)[0], (1, 4))[:, :30] for i in range(6)]
    results = []
    for floats in range(4):
        clients = [
            tuple(shifted(a, floats) for a in (inputs, *train_split.client(i)[1:]))
            for i, inputs in enumerate(wide)
        ]
        split = replace(train_split, examples=clients.__getitem__)
        made = replace(plain, federation=lambda split=split: small.federation("")._replace(train=split))
        executor, table, rule = Serial(), ShiftedTable(), made.algorithm()
        table.floats = floats
        executor.load(made, made.federation(), tuple(a[:3] for a in clients[0]))
        setting = Setting(rule, executor, split, uniform, 6, 0, table)
        state = rule.init(shifted(initial_vector(made), floats))
        for t in range(3):  # every client is met again
            state, _ = run_round(setting, state, t, 0.1, 0.5)
            state = type(state)(*(shifted(v, floats) if isinstance(v, torch.Tensor) else v for v in state))
        results.append((state.x.tolist(), measure_sample(executor, state.x, 3)))
    assert all(other == results[0] for other in results[1:])


def test_a_client_of_the_papers_cnn_gives_the_same_bits_wherever_x_lies():
    task = TASKS["emnist_cr"]
    settings = {"client.steps": 2, "client.batch_size": 1, "data.clients": 2}
    made = build_problem(task, resolve(task, "fedavg", settings))
    executor = Serial()
    executor.load(made, made.federation(), ())
    x, job = initial_vector(made), ClientJob(Round(0, 0.1, 1.0, 1, 2), 0)
    deltas = [next(executor.map([job], (shifted(x, floats),)))[1][0] for floats in range(4)]
    assert all(torch.equal(deltas[0], other) for other in deltas[1:])


# What is not finite


def bad_clients(*clients: int) -> Any:
    return replace(small.SMALL, prepare=partial(small.tainted, clients))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedyogi", "scaffold"])
def test_a_client_that_is_not_finite_is_left_out_with_its_weight_and_counted(algorithm: str):
    """As if the federation did not have it: seven clients in one block, or six of them."""
    everyone = {"data.clients": 7}
    made, x = small.setting(None, algorithm, everyone, task=bad_clients(6), cohort=7)
    state, report = run_round(made, made.algorithm.init(x), 0, 0.1, 0.5)
    without, _ = small.setting(None, algorithm, {"data.clients": 6}, cohort=6)
    expected, _ = run_round(without, without.algorithm.init(x), 0, 0.1, 0.5)
    assert torch.equal(state.x, expected.x)
    assert (report.clients, report.rejected, report.skipped) == (6, ("c06",), 0)
    assert report.loss is not None and math.isfinite(report.loss)
    rows = [i for i in range(7) if made.table.read(i) is not None]
    assert rows == (list(range(6)) if algorithm == "scaffold" else [])


@pytest.mark.parametrize("algorithm", ["fedavg", "fedavgm", "fedyogi", "scaffold"])
def test_a_round_without_a_finite_client_leaves_everything_as_it_is(algorithm: str):
    made, x = small.setting(None, algorithm, task=bad_clients(*range(24)))
    before = made.algorithm.init(x)
    after, report = run_round(made, before, 0, 0.1, 0.5)
    assert after is before
    assert (report.clients, len(report.rejected), report.loss) == (0, 6, None)
    assert all(made.table.read(i) is None for i in range(24))


@pytest.mark.parametrize(("algorithm", "batch", "skipped"), [("scaffold", 1, 0), ("fedavg", 10, 3)])
def test_a_server_step_that_overflows_leaves_everything_as_it_is(algorithm: str, batch: int, skipped: int):
    """Of seven clients, three have fewer examples than a batch of 10 and are skipped."""
    assert list(small.sizes(7)) == [5, 16, 27, 7, 18, 29, 9]
    settings = {"data.clients": 7, "client.drop_last": True, "client.batch_size": batch, "client.steps": 1}
    made, x = small.setting(None, algorithm, settings, cohort=7)
    before = made.algorithm.init(x)
    after, report = run_round(made, before, 0, 100.0, 3e38)
    assert after is before
    assert report.loss is None
    assert all(made.table.read(i) is None for i in range(7))
    assert (report.clients, report.skipped) == (0, skipped)
    assert len(report.rejected) == 7 - skipped


def parts(state: Any) -> list[torch.Tensor]:
    """The vectors of a state, which may be nested."""
    return [state] if isinstance(state, torch.Tensor) else sum((parts(value) for value in state), [])


@pytest.mark.parametrize("algorithm", ["fedadagrad", "fedadam", "fedyogi"])
def test_a_finite_step_with_an_accumulator_that_overflows_does_not_freeze_the_model(algorithm: str):
    """delta^2 is beyond float32 where delta is 1e20: v = inf would divide every later step to nothing."""
    made, x = small.setting(None, algorithm, {"client.steps": 1})
    state, _ = run_round(made, made.algorithm.init(x), 0, 1e21, 0.1)
    assert all(torch.isfinite(v).all() for v in parts(state))
    after, _ = run_round(made, state, 1, 0.1, 0.1)
    assert not torch.equal(after.x, state.x), "it trains on"


def test_clients_smaller_than_a_batch_are_skipped_where_short_batches_are_dropped():
    settings = {"data.clients": 7, "client.drop_last": True, "client.batch_size": 10}
    made, x = small.setting(settings=settings, cohort=7)
    state, report = run_round(made, made.algorithm.init(x), 0, 0.1, 1.0)
    assert (report.clients, report.skipped, report.rejected) == (4, 3, ())
    assert report.examples == 10 + 20 + 10 + 20
    assert (report.bytes_down, report.bytes_up) == (7 * 4 * small.D, 4 * 4 * small.D)


# Communication


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
def test_bytes_are_four_for_each_parameter_client_and_vector(case: str, vectors: int):
    algorithm, settings = small.CASES[case]
    result = small.run(None, algorithm, settings)
    one_way = 4 * (8 * 16 + 16 + 16 * 4 + 4) * 6 * vectors
    assert [line["bytes_down"] for line in result.train] == [one_way] * 3
    assert [line["bytes_up"] for line in result.train] == [one_way] * 3
    assert [line["bytes_total"] for line in result.train] == [2 * one_way, 4 * one_way, 6 * one_way]


# Evaluation


def test_which_rounds_are_evaluated():
    """Round 0, the last, every 100th, and of the last hundred (151 to 250) every 25th from the end."""
    assert [r for r in range(251) if is_evaluated(r, 250, 100, 25)] == [0, 100, 175, 200, 225, 250]
    assert [r for r in range(8) if is_evaluated(r, 7, 3, 100)] == [0, 3, 6, 7]
    assert [r for r in range(4) if is_evaluated(r, 3, 1, 1)] == [0, 1, 2, 3]
    result = small.run(settings={"rounds": 7, "eval.every": 3, "eval.last_every": 2})
    assert [line["round"] for line in result.test] == [0, 1, 3, 5, 6, 7]


def test_loss_and_metric_of_a_model_made_by_hand():
    """A linear model that looks at its first two inputs: three of four examples are right."""
    inputs = np.zeros((4, 8), np.float32)
    inputs[:, :2] = [[2, 0], [0, 3], [1, 0], [0, 1]]
    labels = np.array([0, 1, 0, 0])
    module = nn.Linear(8, 2, bias=False)
    module.weight.data = torch.eye(2, 8)
    split = from_arrays({"t": (inputs, labels, np.zeros(4))})
    made = replace(problem(), model=lambda: module)
    executor = Serial()
    executor.load(made, made.federation(), fixed_sample(split, sample_size(split, 0)))
    measured = measure_sample(executor, torch.eye(2, 8).reshape(-1), 4)
    losses = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(-3)), math.log(1 + math.exp(-1)), 0]
    losses[3] = math.log(1 + math.exp(1))
    assert measured == {"loss": pytest.approx(sum(losses) / 4, rel=1e-6), "accuracy": 0.75}


def test_a_test_set_of_several_shards_is_summed_whole_and_without_dropout():
    inputs, labels, owners = small.cloud("test", 1203, 5)
    made = problem()
    executor, x = Serial(), initial_vector(made)
    executor.load(made, made.federation(), (inputs, labels, owners))
    module = small.network().double().eval()
    nn.utils.vector_to_parameters(x.double(), module.parameters())
    outputs = module(torch.from_numpy(inputs).double())
    loss = F.cross_entropy(outputs, torch.from_numpy(labels)).item()
    hits = (outputs.argmax(1).numpy() == labels).mean()
    assert measure_sample(executor, x, 1203) == pytest.approx({"loss": loss, "accuracy": hits}, rel=1e-6)


def test_the_evaluation_sample_is_fixed_whatever_the_seed():
    split = from_arrays({str(i): (np.arange(10 * i, 10 * i + 10), np.zeros(10)) for i in range(10)})
    (first, _), (again, _) = fixed_sample(split, 30), fixed_sample(split, 30)
    assert len(set(first)) == 30 and set(first) < set(range(100))
    assert (first == again).all()
    assert (fixed_sample(split, sample_size(split, 0))[0] == np.arange(100)).all()
    assert (sample_size(split, 30), sample_size(split, 0), sample_size(split, 1000)) == (30, 100, 100)


def test_runs_of_different_seeds_are_measured_on_the_same_sample():
    """A model that starts at zero answers class 0 at round 0, so its accuracy is the share of that class."""
    task = replace(small.SMALL, model=small.undecided)
    at_zero = [small.run(settings={"seed": s, "eval.sample": 17}, task=task).test[0] for s in (1, 2, 3)]
    assert len({line["accuracy"] for line in at_zero}) == 1
    assert at_zero[0]["loss"] == pytest.approx(math.log(4), rel=1e-6)
    hits = at_zero[0]["accuracy"] * 17
    assert hits == pytest.approx(round(hits), abs=1e-9)


# Memory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_rounds():
    """One vector of this model kept in each of 200 rounds would be 40 MB; 8 MB are allowed."""
    settings = {"model.hidden": 4000, "client.steps": 1}
    made, x = small.setting(settings=settings, cohort=4)
    assert 200 * 4 * len(x) > 40e6
    plan = Plan(250, constant(0.1), constant(1.0), 40, 10, 10, 5)
    for step in train(made, plan, start(made.algorithm.init(x), plan)):
        if step.position.round == 50:
            before = resident_bytes()
    assert step.position.round == 250
    assert resident_bytes() - before < 8e6
