"""Resuming with other data, another model or another algorithm is rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from frozen_model import CLASSES, CLIENTS, CONFIG, HIDDEN, TEST, FrozenLayer, examples
from torch import Tensor, nn
from written import read_info

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
    info = read_info(tmp_path / "run")
    del info["fingerprint"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(info))
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
