"""Resuming with other data, another model or another algorithm is rejected."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from frozen_model import CLASSES, CLIENTS, CONFIG, FEATURES, HIDDEN, TEST, FrozenLayer, examples
from torch import Tensor, nn
from written import read_info, remove_checksums

import fedopt
from fedopt.errors import RunDirectoryError


class Wider(FrozenLayer):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(HIDDEN, CLASSES, bias=False)


class OtherForward(FrozenLayer):
    """The same parameters as FrozenLayer, with another computation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.tanh(x))


def share_of_zeros(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (outputs.argmax(1) == 0).float(), torch.ones(len(targets))


@pytest.mark.parametrize("change", ["data", "sizes", "ids", "model", "forward", "metrics", "algorithm"])
def test_resuming_with_other_parts_is_rejected(change: str, tmp_path: Path) -> None:
    def sign(x, delta, eta, t, state):
        return x + eta * torch.sign(delta), state

    def other_sign(x, delta, eta, t, state):
        return x + 2 * eta * torch.sign(delta), state

    def build(update):
        def own_algorithm() -> fedopt.Algorithm:
            return fedopt.algorithms.fedopt(fedopt.algorithms.sgd(), fedopt.Optimizer(update))

        return own_algorithm

    def run(clients=CLIENTS, model=FrozenLayer, update=sign, metrics=None) -> fedopt.RunResult:
        task = fedopt.own_task(model, F.cross_entropy, clients, TEST, metrics=metrics)
        return fedopt.run(task, algorithm=build(update), rounds=2, config=CONFIG, out=tmp_path / "run")

    run()
    points, labels = CLIENTS["client0"]
    changed = {
        "data": {"clients": {**CLIENTS, "client0": (points + 1, labels)}},
        "sizes": {"clients": {**CLIENTS, "client0": (points[:-1], labels[:-1])}},
        "ids": {"clients": {f"other{name}": value for name, value in CLIENTS.items()}},
        "model": {"model": Wider},
        "forward": {"model": OtherForward},
        "metrics": {"metrics": {"zeros": share_of_zeros}},
        "algorithm": {"update": other_sign},
    }[change]
    with pytest.raises(RunDirectoryError) as caught:
        run(**changed)
    assert caught.value.path == tmp_path / "run" and "\n" not in str(caught.value)
    run()  # the original parts are still accepted


def test_fewer_rounds_than_recorded_are_rejected(tmp_path: Path) -> None:
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    fedopt.run(task, rounds=6, config=CONFIG, out=tmp_path / "run")
    with pytest.raises(RunDirectoryError):
        fedopt.run(task, rounds=4, config=CONFIG, out=tmp_path / "run")


def test_difference_is_named(tmp_path: Path) -> None:
    points, labels = CLIENTS["client0"]
    other_data = {**CLIENTS, "client0": (points + 1, labels)}
    fewer = {name: CLIENTS[name] for name in list(CLIENTS)[:4]}
    first, second = FrozenLayer(), FrozenLayer()
    second.last = first.last  # other frozen values, the same trainable ones

    def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def run(model=first, loss=F.cross_entropy, clients=CLIENTS, test=TEST) -> None:
        task = fedopt.own_task(model, loss, clients, test)
        fedopt.run(task, rounds=2, config=CONFIG, out=tmp_path / "run")

    run()
    before = read_info(tmp_path / "run")
    for changes, expected in (
        ({"clients": other_data}, "train client 'client0'"),
        ({"clients": fewer}, "number of train clients was 6 and is 4"),
        ({"test": examples(101, 200)}, "test client 'test'"),
        ({"model": second}, "frozen tensor 'first.weight'"),
        ({"model": Wider}, "parameter 'last.bias'"),
        ({"loss": mean_loss}, "loss"),
    ):
        with pytest.raises(RunDirectoryError, match=expected):
            run(**changes)
        assert read_info(tmp_path / "run") == before
    run()


def test_run_of_an_older_version_has_no_fingerprint_and_resumes(tmp_path: Path) -> None:
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    fedopt.run(task, rounds=2, config=CONFIG, out=tmp_path / "run")
    remove_checksums(tmp_path / "run", fingerprint=None)
    (tmp_path / "run" / "model.safetensors").unlink()
    resumed = fedopt.run(task, rounds=4, config=CONFIG, out=tmp_path / "run")
    assert resumed.x_sha256 == fedopt.run(task, rounds=4, config=CONFIG).x_sha256


def test_fewer_rounds_than_checkpointed_are_rejected(tmp_path: Path) -> None:
    """Also if the run was interrupted. Its status does not change."""
    task, out = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST), tmp_path / "run"

    class Enough(Exception):
        pass

    def stop(step: fedopt.Step) -> None:
        if step.position.round == 5:
            raise Enough

    config = {**CONFIG, "checkpoint.every": 1}
    with pytest.raises((Enough, fedopt.FedoptError)):
        fedopt.run(task, rounds=8, config=config, out=out, callback=stop)
    status = read_info(out)["status"]
    with pytest.raises(RunDirectoryError):
        fedopt.run(task, rounds=3, config=config, out=out)
    assert read_info(out)["status"] == status
    whole = fedopt.run(task, rounds=8, config=config)
    assert fedopt.run(task, rounds=8, config=config, out=out).x_sha256 == whole.x_sha256


def test_changed_data_of_any_client_in_memory_are_detected(tmp_path: Path) -> None:
    many = {f"client{number}": examples(number, 6) for number in range(60)}
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, many, TEST)
    fedopt.run(task, rounds=1, config=CONFIG, out=tmp_path / "run")
    for number in range(0, 60, 7):
        points, labels = many[f"client{number}"]
        changed = {**many, f"client{number}": (points + 1, labels)}
        task = fedopt.own_task(FrozenLayer, F.cross_entropy, changed, TEST)
        with pytest.raises(RunDirectoryError):
            fedopt.run(task, rounds=2, config=CONFIG, out=tmp_path / "run")


def model_of(value: float) -> nn.Module:
    """A model with given values of its first layer, and with random ones of its last layer."""
    first = nn.Linear(FEATURES, HIDDEN)
    nn.init.constant_(first.weight, value)
    nn.init.constant_(first.bias, value)
    return nn.Sequential(first, nn.BatchNorm1d(HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


def task_of(model: nn.Module | Callable[[], nn.Module]) -> fedopt.Task:
    return fedopt.own_task(model, F.cross_entropy, CLIENTS, TEST)


BATCH_NORM = {**CONFIG, "buffers": "average"}


def shifted(model: nn.Sequential, name: str) -> nn.Module:
    """A copy of a model with other values of one parameter or buffer."""
    other = copy.deepcopy(model)
    state = other.state_dict()
    state[name] += 0.5
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize("name", ["0.weight", "3.bias", "1.running_mean"])
def test_module_with_other_initial_values_is_rejected(name: str, rounds: int, tmp_path: Path) -> None:
    model, out = model_of(0.1), tmp_path / "run"
    fedopt.run(task_of(model), rounds=2, config=BATCH_NORM, out=out)
    before = read_info(out)
    with pytest.raises(RunDirectoryError, match=name) as caught:
        fedopt.run(task_of(shifted(model, name)), rounds=rounds, config=BATCH_NORM, out=out)
    assert caught.value.path == out and read_info(out) == before
    again = fedopt.run(task_of(model), rounds=3, config=BATCH_NORM, out=out)
    assert again.x_sha256 == fedopt.run(task_of(model), rounds=3, config=BATCH_NORM).x_sha256


def test_function_with_other_values_that_the_seed_does_not_draw_is_rejected(tmp_path: Path) -> None:
    """The last layer is random, and the others are not."""
    fedopt.run(task_of(lambda: model_of(0.1)), rounds=2, config=BATCH_NORM, out=tmp_path / "run")
    recorded = read_info(tmp_path / "run")["fingerprint"]["weights"]
    assert set(recorded) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    with pytest.raises(RunDirectoryError, match="0.weight"):
        fedopt.run(task_of(lambda: model_of(0.2)), rounds=2, config=BATCH_NORM, out=tmp_path / "run")


def test_values_that_no_seed_determines_are_not_compared(tmp_path: Path) -> None:
    def drawn() -> nn.Module:
        model = FrozenLayer()
        model.last.bias.data += float(np.random.default_rng().normal())
        return model

    out = tmp_path / "run"
    first = fedopt.run(task_of(drawn), rounds=2, config=CONFIG, out=out)
    assert fedopt.run(task_of(drawn), rounds=2, config=CONFIG, out=out).x_sha256 == first.x_sha256


def test_run_of_version_0_2_0_has_no_checksum_of_the_weights_and_resumes(tmp_path: Path) -> None:
    model, out = model_of(0.1), tmp_path / "run"
    fedopt.run(task_of(model), rounds=2, config=BATCH_NORM, out=out)
    fingerprint = read_info(out)["fingerprint"]
    del fingerprint["weights"]
    remove_checksums(out, fingerprint=fingerprint)
    resumed = fedopt.run(task_of(model), rounds=3, config=BATCH_NORM, out=out)
    assert resumed.x_sha256 == fedopt.run(task_of(model), rounds=3, config=BATCH_NORM).x_sha256


def two_models() -> list[nn.Module]:
    model = FrozenLayer()
    other = copy.deepcopy(model)
    other.last.weight.data += 1.0
    return [model, other]


def test_comparisons_of_two_models_have_their_own_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fine-tuning two networks of one architecture."""
    monkeypatch.chdir(tmp_path)
    models = two_models()
    groups = [fedopt.compare(task_of(model), ["fedavg"], rounds=2, config=CONFIG) for model in models]
    for model, group in zip(models, groups, strict=True):
        expected = fedopt.run(task_of(model), "fedavg", rounds=2, config=CONFIG)
        assert group.results[0].x_sha256 == expected.x_sha256
    assert groups[0].out != groups[1].out
    again = fedopt.compare(task_of(models[0]), ["fedavg"], rounds=3, config=CONFIG)
    assert again.out == groups[0].out and again.results[0].rounds == 3
    with pytest.raises(RunDirectoryError):
        fedopt.compare(task_of(models[1]), ["fedavg"], rounds=2, config=CONFIG, out=groups[0].out)


def test_sweeps_of_two_models_have_their_own_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    models, grid = two_models(), {"client_lr": [-1, 0]}

    def sweep(model: nn.Module, **options: Any) -> Any:
        config = {"clients_per_round": 3}
        return fedopt.sweep(
            task_of(model), "fedavg", grid, rounds=2, config=config, executor="serial", **options
        )

    results = [sweep(model) for model in models]
    assert results[0].out != results[1].out
    assert sweep(models[0]).out == results[0].out
    for model, result in zip(models, results, strict=True):
        best = result.best["fedavg"]
        settings = {"clients_per_round": 3, **best.settings}
        expected = fedopt.run(task_of(model), rounds=2, config=settings)
        assert torch.equal(fedopt.load(best.runs[0], model=model).x, expected.x)
    with pytest.raises(RunDirectoryError):  # the finished trials are not those of the other model
        sweep(models[1], out=results[0].out)


def weighted(outputs: Tensor, targets: Tensor, weights: list[float]) -> Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.tensor(weights))


def test_changed_argument_of_the_loss_is_rejected(tmp_path: Path) -> None:
    def run(weights: list[float], rounds: int = 2) -> fedopt.RunResult:
        task = fedopt.own_task(FrozenLayer, partial(weighted, weights=weights), CLIENTS, TEST)
        return fedopt.run(task, rounds=rounds, config=CONFIG, out=tmp_path / "run")

    run([1.0, 1.0, 1.0])
    with pytest.raises(RunDirectoryError, match="loss"):
        run([1.0, 1.0, 2.0])
    assert run([1.0, 1.0, 1.0], rounds=3).rounds == 3


def test_changed_initialisation_is_rejected(tmp_path: Path) -> None:
    """The seed draws the weights, so they have no checksum of their own."""

    def run(initialise: Callable[[Tensor], Tensor]) -> None:
        def build() -> nn.Module:
            model = FrozenLayer()
            initialise(model.last.weight)
            return model

        fedopt.run(task_of(build), rounds=2, config=CONFIG, out=tmp_path / "run")

    def small(weight: Tensor) -> Tensor:
        return nn.init.normal_(weight, std=0.1)

    def large(weight: Tensor) -> Tensor:
        return nn.init.normal_(weight, std=1.0)

    run(small)
    with pytest.raises(RunDirectoryError, match="model"):
        run(large)
    run(small)


@pytest.mark.parametrize("sections", ["0.2.0", "unknown"])
def test_code_in_the_format_of_another_version_is_not_compared(sections: str, tmp_path: Path) -> None:
    task = fedopt.own_task(FrozenLayer, F.cross_entropy, CLIENTS, TEST)
    out = tmp_path / "run"
    fedopt.run(task, rounds=2, config=CONFIG, out=out)
    fingerprint = read_info(out)["fingerprint"]
    del fingerprint["code"]
    parts = {"model": "structure", "loss": "function", "metrics": "accuracy", "algorithm": "function server"}
    old = {section: {name: "0" * 64} for section, name in parts.items()}
    fingerprint |= old if sections == "0.2.0" else {"code of a later version": {"loss": "0" * 64}}
    remove_checksums(out, fingerprint=fingerprint)
    assert fedopt.run(task, rounds=3, config=CONFIG, out=out).rounds == 3
    changed = {**CLIENTS, "client0": examples(7)}
    with pytest.raises(RunDirectoryError):  # the other sections still are
        fedopt.run(fedopt.own_task(FrozenLayer, F.cross_entropy, changed, TEST), rounds=3, out=out)
