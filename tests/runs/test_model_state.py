"""Frozen parameters and buffers belong to the model: trained, evaluated, loaded and exported alike."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from frozen_model import CLASSES, CLIENTS, CONFIG, FEATURES, HIDDEN, TEST, FrozenLayer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fedopt
from fedopt.engine.executors.processes import Processes
from fedopt.errors import ModelError, RunDirectoryError
from fedopt.runs.execute import execute
from fedopt.runs.prepare import RunRequest


class FourierFeatures(nn.Module):
    """Random features in a buffer, drawn by numpy: torch's seed has no influence on them."""

    def __init__(self) -> None:
        super().__init__()
        frequencies = np.random.default_rng().normal(size=(FEATURES, HIDDEN)).astype(np.float32)
        self.register_buffer("frequencies", torch.from_numpy(frequencies))
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cos(x @ self.frequencies))


class HiddenBuffer(FourierFeatures):
    """The same buffer, left out of the state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", self.frequencies, persistent=False)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.norm.running_mean.copy_(torch.randn(FEATURES))  # statistics from a pretraining
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(x))


def accuracy_of(model: nn.Module) -> float:
    points, labels = (torch.from_numpy(a) for a in TEST)
    with torch.no_grad():
        return float((model(points).argmax(1) == labels).float().mean())


@pytest.mark.parametrize("model", [FrozenLayer, FourierFeatures, HiddenBuffer, Norm])
@pytest.mark.parametrize("executor", ["serial", "processes", "vectorised"])
def test_result_model_and_loaded_model_are_the_evaluated_model(
    model: type[nn.Module], executor: str, tmp_path: Path
) -> None:
    task = fedopt.own_task(model, F.cross_entropy, CLIENTS, TEST)
    run = tmp_path / "run"
    with fedopt.workers(1) if executor == "processes" else nullcontext():  # small runs would be serial
        result = fedopt.run(task, rounds=8, config=CONFIG, buffers="freeze", executor=executor, out=run)
    evaluated = result.test[-1]["accuracy"]
    assert accuracy_of(result.model) == pytest.approx(evaluated)
    assert accuracy_of(result.model) == pytest.approx(evaluated)  # on every access
    assert accuracy_of(fedopt.load(run, model=model).model) == pytest.approx(evaluated)


def test_loading_with_another_model_is_rejected(tmp_path: Path) -> None:
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    fedopt.run(task, rounds=1, config=CONFIG, out=tmp_path / "run")
    with pytest.raises(ModelError):
        fedopt.load(tmp_path / "run", model=FourierFeatures)


def test_resumed_run_keeps_the_frozen_values_of_its_start(tmp_path: Path) -> None:
    """FourierFeatures draws new frequencies whenever it is built."""
    task = fedopt.own_task(FourierFeatures, F.cross_entropy, CLIENTS, TEST)
    fedopt.run(task, rounds=4, config=CONFIG, out=tmp_path / "run")
    result = fedopt.run(task, rounds=8, config=CONFIG, out=tmp_path / "run")
    assert accuracy_of(result.model) == pytest.approx(result.test[-1]["accuracy"])


def test_loaded_weights_contain_frozen_values(tmp_path: Path) -> None:
    """`fedopt export` writes the state_dict of the loaded model."""
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    result = fedopt.run(task, rounds=2, config=CONFIG, out=tmp_path / "run")
    fresh = FrozenLayer()
    fresh.load_state_dict(fedopt.load(tmp_path / "run", model=FrozenLayer).model.state_dict())
    assert accuracy_of(fresh) == pytest.approx(result.test[-1]["accuracy"])


def test_damaged_or_missing_model_file_is_reported(tmp_path: Path) -> None:
    task, run = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST), tmp_path / "run"
    fedopt.run(task, rounds=2, config=CONFIG, out=run)
    file = run / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    for action in (
        lambda: fedopt.load(run, model=FrozenLayer),
        lambda: fedopt.run(task, rounds=4, config=CONFIG, out=run),
    ):
        with pytest.raises(RunDirectoryError) as caught:
            action()
        assert caught.value.path == run
    file.unlink()
    with pytest.raises(RunDirectoryError):
        fedopt.run(task, rounds=4, config=CONFIG, out=run)


def test_result_model_has_its_own_tensors() -> None:
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    result = fedopt.run(task, rounds=2, config=CONFIG)
    before = accuracy_of(result.model)
    with torch.no_grad():
        result.model.first.weight.zero_()
    assert accuracy_of(result.model) == before


def test_initial_weights_of_a_file_include_frozen_values(tmp_path: Path) -> None:
    pretrained = FrozenLayer()
    save_file(pretrained.state_dict(), tmp_path / "weights.safetensors")
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    from_file = fedopt.run(task, rounds=2, config=CONFIG, init=tmp_path / "weights.safetensors")
    module_task = fedopt.own_task(pretrained, F.cross_entropy, CLIENTS, TEST)
    assert torch.equal(from_file.x, fedopt.run(module_task, rounds=2, config=CONFIG).x)
    assert torch.equal(from_file.model.first.weight, pretrained.first.weight)


def test_frozen_parameter_that_training_changes_is_refused() -> None:
    class Changing(FrozenLayer):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.first.weight.mul_(0.9)
            return super().forward(x)

    task = fedopt.own_task(Changing, F.cross_entropy, CLIENTS, TEST)
    with pytest.raises(ModelError) as caught:
        fedopt.run(task, rounds=1, config=CONFIG)
    assert caught.value.what == "first.weight"


def test_export_contains_frozen_values(tmp_path: Path) -> None:
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    result = fedopt.run(task, rounds=2, config=CONFIG, out=tmp_path / "run")
    fedopt.export(tmp_path / "run", tmp_path / "export", task=task)
    model = FrozenLayer()
    model.load_state_dict(load_file(tmp_path / "export" / "model.safetensors"))
    assert accuracy_of(model) == pytest.approx(result.test[-1]["accuracy"])


@pytest.mark.parametrize("model", [FrozenLayer, HiddenBuffer])
def test_worker_processes_use_the_frozen_values_of_the_main_process(model: type[nn.Module]) -> None:
    """Small runs do not use worker processes on their own, so this test opens them."""
    task = fedopt.own_task(model, F.cross_entropy, CLIENTS, TEST)
    prepared = RunRequest(task, "fedavg", {**CONFIG, "rounds": 4}).prepare()
    executor = Processes(2)
    try:
        result = execute(prepared, executor)
    finally:
        executor.close()
    assert accuracy_of(result.model) == pytest.approx(result.test[-1]["accuracy"])
    assert result.test[-1]["accuracy"] > 0.8  # workers with other values would not train this model
