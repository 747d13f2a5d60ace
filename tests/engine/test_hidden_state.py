"""A model computes the same on every executor, whatever a process has computed before, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stateful_models as models
import torch
from own_clients import SETTINGS, make_task
from torch import nn

import fedopt
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.processes import Processes
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.errors import ModelError
from fedopt.remote.location import parse_location
from fedopt.runs.execute import execute
from fedopt.runs.prepare import RunRequest

ROUNDS = 6
CONFIG = {**SETTINGS, "client.lr": 0.5, "rounds": ROUNDS}


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
    model: type[nn.Module], executor: Executor, out: Path | None = None, **config: Any
) -> fedopt.RunResult:
    prepared = RunRequest(make_task(model), "fedavg", {**CONFIG, **config}).prepare()
    return execute(prepared, executor, out=None if out is None else parse_location(out))


def metrics(result: fedopt.RunResult) -> list[tuple[float, float]]:
    return [(line["loss"], line["accuracy"]) for line in result.test]


@pytest.mark.parametrize("model", models.REFUSED, ids=lambda model: model.__name__)
@pytest.mark.parametrize("name", ["serial", "2 processes", "3 processes", "vectorised"])
def test_model_is_refused(model: type[nn.Module], name: str, executors: dict[str, Executor]) -> None:
    with pytest.raises(ModelError) as caught:
        run(model, executors[name])
    assert "\n" not in str(caught.value)
    assert caught.value.what == models.REFUSED[model]


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
    assert vectorised.test[-1]["loss"] == pytest.approx(serial.test[-1]["loss"], rel=1e-4)
    evaluations = [fedopt.evaluate(serial).values for _ in range(2)]
    assert evaluations[0] == evaluations[1]
