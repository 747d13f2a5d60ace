"""Jobs are reproducible: seeds, threads, alignment and memory do not change results."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import small
import torch
from small import run_round
from splits import from_arrays

from fedopt import rng
from fedopt.algorithms import Round
from fedopt.engine.client_state import MemoryTable
from fedopt.engine.evaluate import evaluate_sample
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.loop import TrainingSetup
from fedopt.engine.sampling import uniform
from fedopt.engine.torch_state import seeded
from fedopt.engine.worker import ClientJob
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


@pytest.mark.parametrize("accelerator", [False, True])
def test_seeding_is_the_same_with_and_without_an_accelerator(
    accelerator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    before = torch.get_rng_state()
    with seeded(1, "client", 2):
        drawn = torch.rand(5)
    assert torch.equal(torch.get_rng_state(), before)
    own = torch.Generator().manual_seed(rng.torch_seed(1, "client", 2))
    assert torch.equal(drawn, torch.rand(5, generator=own))


def test_initial_weights_depend_on_the_seed():
    first, again, other = (initial_vector(small.problem({"seed": s})) for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def identical_examples(dropout: float, seed: int, t: int = 0) -> torch.Tensor:
    """Return x after one step on copies of one example, so that only dropout is random."""
    arrays = (np.ones((20, small.FEATURES), np.float32), np.ones(20, np.int64), np.zeros(20))
    split = from_arrays({"a": arrays})
    federation = small.federation("own")._replace(train=split)
    problem = replace(small.problem({"seed": seed, "model.dropout": dropout}), federation=lambda: federation)
    executor = Serial()
    executor.load(problem, problem.federation(), arrays)
    setup = TrainingSetup(problem.algorithm(), executor, split, uniform, 1, seed, MemoryTable())
    x = torch.linspace(-1, 1, small.D)
    return run_round(setup, setup.algorithm.init(x), t, 0.1, 1.0)[0].x


def test_dropout_depends_on_seed_and_round():
    first = identical_examples(0.5, seed=1)
    assert torch.equal(first, identical_examples(0.5, seed=1))
    assert not torch.equal(first, identical_examples(0.5, seed=2))
    assert not torch.equal(first, identical_examples(0.5, seed=1, t=1))
    assert torch.equal(identical_examples(0.0, seed=1), identical_examples(0.0, seed=2)), (
        "only dropout is random"
    )


def test_run_depends_on_the_seed_only():
    first, again, other = (small.run(settings={"seed": s}) for s in (1, 1, 2))
    assert first.x_sha256 == again.x_sha256 != other.x_sha256
    assert [line["loss"] for line in first.train] == [line["loss"] for line in again.train]


def global_generators() -> tuple[Any, ...]:
    numpy = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), random.getstate(), numpy[1].tolist(), numpy[2:]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("executor", [Serial(), Vectorised()], ids=["serial", "vectorised"])
def test_run_restores_generators_and_threads(executor: Executor, fails: bool):
    task = replace(small.SMALL, prepare=partial(small.marked, 3), loss=small.picky) if fails else small.SMALL
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.manual_seed(123)
        random.gauss(0, 1)
        np.random.randn()  # noqa: NPY002  keeps a second number for the next call
        before = global_generators()
        with np.errstate(all="raise"):
            try:
                small.run(executor, task=task, settings={"clients_per_round": 24, "rounds": 1})
            except Exception:
                assert fails
        assert global_generators() == before
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_run_does_not_depend_on_generator_and_threads():
    expected = small.run().x_sha256
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.manual_seed(99)
        torch.rand(7)
        assert small.run().x_sha256 == expected
    finally:
        torch.set_num_threads(threads)


def shifted(values: Any, floats: int) -> Any:
    """Copy values to memory that starts `floats` floats after a multiple of 64 bytes."""
    if isinstance(values, torch.Tensor):
        buffer = torch.empty(len(values) + 32)
        first = floats + (-buffer.data_ptr() % 64) // 4
        view = buffer[first : first + len(values)]
        view.copy_(values)
        assert view.data_ptr() % 64 == 4 * floats
        return view
    memory = np.empty(values.nbytes + 128, np.uint8)
    first = 4 * floats + -memory.ctypes.data % 64
    array = memory[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


class ShiftedTable(MemoryTable):
    floats = 0

    def read(self, client: int) -> Any:
        row = super().read(client)
        return None if row is None else tuple(shifted(v, self.floats) for v in row)


@pytest.mark.parametrize("algorithm", ["scaffold", "fedyogi", "adaalter"])
def test_round_does_not_depend_on_memory_alignment(algorithm: str):
    """Products with one to three examples can depend on alignment (MKL, AVX2)."""
    settings = {"model.hidden": 33, "model.features": 30, "client.batch_size": 1, "client.steps": 5}
    config = resolve(small.SMALL, algorithm, small.SETTINGS | settings | {"data.clients": 6})
    unshifted = build_problem(small.SMALL, config)
    train_split = unshifted.federation().train
    wide = [np.tile(train_split.client(i)[0], (1, 4))[:, :30] for i in range(6)]
    results = []
    for floats in range(4):
        clients = [
            tuple(shifted(a, floats) for a in (inputs, *train_split.client(i)[1:]))
            for i, inputs in enumerate(wide)
        ]
        split = replace(train_split, examples=clients.__getitem__)
        problem = replace(
            unshifted, federation=lambda split=split: small.federation("")._replace(train=split)
        )
        executor, table, rule = Serial(), ShiftedTable(), problem.algorithm()
        table.floats = floats
        executor.load(problem, problem.federation(), tuple(a[:3] for a in clients[0]))
        setup = TrainingSetup(rule, executor, split, uniform, 6, 0, table)
        state = rule.init(shifted(initial_vector(problem), floats))
        for t in range(3):  # every client takes part again
            state, _ = run_round(setup, state, t, 0.1, 0.5)
            state = type(state)(*(shifted(v, floats) if isinstance(v, torch.Tensor) else v for v in state))
        results.append((state.x.tolist(), evaluate_sample(executor, state.x, 3)))
    assert all(other == results[0] for other in results[1:])


def test_cnn_client_does_not_depend_on_alignment_of_x():
    task = TASKS["emnist_cr"]
    settings = {"client.steps": 2, "client.batch_size": 1, "data.clients": 2}
    problem = build_problem(task, resolve(task, "fedavg", settings))
    executor = Serial()
    executor.load(problem, problem.federation(), ())
    x, job = initial_vector(problem), ClientJob(Round(0, 0.1, 1.0, 1, 2), 0)
    deltas = [next(executor.map([job], (shifted(x, floats),)))[1][0] for floats in range(4)]
    assert all(torch.equal(deltas[0], other) for other in deltas[1:])
