"""A model computes the same on every executor, whatever a process has computed before, or it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import stateful_models as models
import torch
from own_clients import SETTINGS, make_task
from torch import nn

import fedopt
from fedopt.algorithms import Round
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.processes import Processes
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.worker import ClientJob, ClientsJob, SampleJob, SplitJob
from fedopt.errors import ExecutorWarning, ModelError
from fedopt.remote.location import parse_location
from fedopt.runs.execute import execute
from fedopt.runs.prepare import RunRequest
from fedopt.tasks.batch import Batch

CONFIG = {**SETTINGS, "client.lr": 0.5, "rounds": 6}


@pytest.fixture(scope="module")
def executors() -> Iterator[dict[str, Executor]]:
    opened: dict[str, Executor] = {
        "serial": Serial(),
        "2 processes": Processes(2),
        "3 processes": Processes(3),
        "vectorised": Vectorised(),
    }
    yield opened
    for executor in opened.values():
        executor.close()


def run(
    model: Callable[[], nn.Module], executor: Executor, out: Path | None = None, **config: Any
) -> fedopt.RunResult:
    prepared = RunRequest(make_task(model), "fedavg", {**CONFIG, **config}).prepare()
    return execute(prepared, executor, out=None if out is None else parse_location(out))


def assert_names(part: str, action: Callable[[], Any]) -> None:
    """Assert that the action is refused with one line that names this part of the model."""
    with pytest.raises(ModelError) as caught:
        action()
    assert "\n" not in str(caught.value)
    assert caught.value.what == part


def metrics(result: fedopt.RunResult) -> list[tuple[float, float]]:
    return [(line["loss"], line["accuracy"]) for line in result.test]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *product(["serial", "2 processes"], models.REFUSED),
        *(("vectorised", model) for model in list(models.REFUSED)[::4]),  # the inspection takes longest
    ],
)
def test_model_is_refused(name: str, model: type[nn.Module], executors: dict[str, Executor]) -> None:
    assert_names(models.REFUSED[model], lambda: run(model, executors[name]))


@pytest.mark.parametrize("model", models.EQUAL, ids=lambda model: model.__name__)
def test_model_is_trained_and_evaluated_alike(
    model: type[nn.Module], executors: dict[str, Executor], tmp_path: Path
) -> None:
    results = {name: run(model, executor) for name, executor in executors.items()}
    vectorised, serial = results.pop("vectorised"), results["serial"]
    run(model, executors["serial"], tmp_path, rounds=2)
    results["resumed"] = run(model, executors["serial"], tmp_path)
    results["again"] = run(model, executors["serial"])
    for name, other in results.items():
        assert torch.equal(other.x, serial.x), name
        assert metrics(other) == metrics(serial), name
    assert torch.equal(run(model, Serial(), **{"eval.every": 4}).x, serial.x)
    torch.testing.assert_close(vectorised.x, serial.x)
    np.testing.assert_allclose(metrics(vectorised), metrics(serial), rtol=1e-4)
    assert fedopt.evaluate(serial).values == fedopt.evaluate(serial).values


def test_no_checkpoint_is_written_after_a_buffer_has_changed(tmp_path: Path) -> None:
    config = {"checkpoint.every": 1, "eval.every": 6, "eval.last_every": 6}
    assert_names("one", lambda: run(models.LateBuffer, Serial(), tmp_path, **config))
    rounds = [int(file.stem.split("-")[-1]) for file in (tmp_path / "checkpoints").iterdir()]
    assert 0 < max(rounds) < 5


@pytest.mark.parametrize("model", [models.ClampInEvaluation, models.DataInEvaluation])
@pytest.mark.parametrize("job", [SampleJob(0, 60), SplitJob("test", 0), ClientsJob("test", (0,))], ids=str)
def test_evaluation_leaves_the_model_of_the_server_unchanged(model: type[nn.Module], job: Any) -> None:
    problem = RunRequest(make_task(model), "fedavg", CONFIG).prepare().problem
    executor, x = Serial(), torch.full((12,), 2.0)
    federation = problem.federation()
    executor.load(problem, federation, federation.test.client(0))
    assert_names("w", lambda: list(executor.map([job], (x,))))
    assert torch.equal(x, torch.full((12,), 2.0))


def test_clients_are_evaluated_one_by_one_with_the_weights_of_the_server() -> None:
    problem = RunRequest(make_task(models.FailsOnLargeBatches), "fedavg", CONFIG).prepare().problem
    executor, federation = Serial(), problem.federation()
    executor.load(problem, federation, federation.test.client(0))
    jobs = [ClientsJob("train", (0,), 7), ClientsJob("train", (0, 1), 7)]
    (one, _), (two, _) = executor.map(jobs, (torch.linspace(-1, 1, 12),))
    assert one[0] == two[0]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold"])
def test_training_leaves_the_model_of_the_server_unchanged(algorithm: str) -> None:
    """The model clamps in training only, and only once the first client has been checked."""
    config = {**CONFIG, "client.option": "I"} if algorithm == "scaffold" else CONFIG
    problem = RunRequest(make_task(models.DataCopyInTraining), algorithm, config).prepare().problem
    executor, federation = Serial(), problem.federation()
    executor.load(problem, federation, federation.test.client(0))
    job = ClientJob(Round(0, 0.1, 1.0, 1, 6), 0)
    x = torch.zeros(12)
    sent = (x, torch.zeros(12))[: len(problem.algorithm().sends)]
    list(executor.map([job], sent))
    x.fill_(2.0)
    assert_names("w", lambda: list(executor.map([job], sent)))
    assert torch.equal(x, torch.full((12,), 2.0))


def noisy(examples: tuple[torch.Tensor, ...], augment: np.random.Generator | None) -> Batch:
    inputs, targets = small.prepare(examples, augment)
    return inputs + float(np.random.rand()), targets  # noqa: NPY002


def test_batches_may_draw_from_global_generators() -> None:
    task = replace(small.SMALL, prepare=noisy)
    results = [small.run(executor, task=task) for executor in (Serial(), Vectorised())]
    assert results[0].x_sha256 == results[1].x_sha256
    np.testing.assert_array_equal(*([line["loss"] for line in result.test] for result in results))


def test_fallback_is_recorded_and_reported_once(tmp_path: Path) -> None:
    task = make_task(models.NumpyNoise)
    with pytest.warns(ExecutorWarning) as caught:
        result = fedopt.run(task, rounds=2, config=SETTINGS, executor="vectorised", out=tmp_path / "run")
    assert len(caught) == 1 and caught[0].filename == __file__
    assert result.fallback_reason and result.summary()["fallback_reason"] == result.fallback_reason
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["fallback_reason"] == result.fallback_reason
    stacked = fedopt.run(make_task(models.Linear), rounds=2, config=SETTINGS, executor="vectorised")
    assert stacked.fallback_reason == "" and "fallback_reason" not in stacked.summary()
