"""`fedopt.run` and `fedopt.load`: results, callbacks, run directories, initial weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from own_clients import (
    CLASSES,
    FEATURES,
    assert_refused,
    linear,
    make_task,
    train,
)
from safetensors.torch import save_file
from torch import nn

import fedopt
from fedopt.errors import ConfigError, ModelError, RunDirectoryError, UnknownName


def test_invalid_settings_are_refused() -> None:
    task = make_task()
    assert_refused(lambda: train(task, algorithm="fedyogy"), UnknownName, kind="algorithm", name="fedyogy")
    assert_refused(lambda: train(task, rounds=0), ConfigError, keys=("rounds",))
    for key, value in (("client.lr", float("nan")), ("clients_per_round", 7), ("weighting", "tokens")):
        assert_refused(lambda k=key, v=value: train(task, config={k: v}), ConfigError, keys=(key,))
    assert_refused(lambda: train(task, executor="threads"), UnknownName, kind="executor", name="threads")
    assert_refused(lambda: train(task, workers=0), fedopt.UserError)
    assert_refused(lambda: fedopt.run("emnist"), UnknownName, kind="task", name="emnist")


def test_result_has_all_documented_fields() -> None:
    result = train(make_task(), algorithm="fedyogi", rounds=3, seed=5)
    summary = result.summary()
    names = "task algorithm rounds seed train_loss metric last value params x_sha256 seconds rejected data"
    assert set(summary) == set(names.split())
    assert json.loads(json.dumps(summary)) == summary
    assert {key: summary[key] for key in ("task", "algorithm", "rounds", "seed", "metric", "params")} == {
        "task": "own",
        "algorithm": "fedyogi",
        "rounds": 3,
        "seed": 5,
        "metric": "accuracy",
        "params": FEATURES * CLASSES + CLASSES,
    }
    accuracies = [line["accuracy"] for line in result.test]
    assert [line["round"] for line in result.test] == [0, 1, 2, 3]
    assert summary["last"] == accuracies[-1]
    assert summary["value"] == pytest.approx(sum(accuracies[1:]) / 3)  # round 0 is before training
    losses = [line["loss"] for line in result.train]
    assert summary["train_loss"] == pytest.approx(sum(losses) / 3)


def test_callback_is_called_at_the_start_and_after_every_round() -> None:
    steps: list[tuple[int, bool, bool]] = []
    train(
        make_task(),
        rounds=4,
        config={"eval.every": 2, "eval.last_every": 100},
        callback=lambda step: steps.append(
            (step.position.round, step.report is not None, step.evaluation is not None)
        ),
    )
    assert steps == [(0, False, True), (1, True, False), (2, True, True), (3, True, False), (4, True, True)]


def test_run_directory_can_be_resumed_extended_and_loaded(tmp_path: Path) -> None:
    task, out, rounds = make_task(), tmp_path / "run", []

    def note(step: Any) -> None:
        rounds.append(step.position.round)

    whole = train(task, rounds=5, algorithm="fedadam")
    first = train(task, rounds=3, algorithm="fedadam", out=out, callback=note)
    again = train(task, rounds=3, algorithm="fedadam", out=out, callback=note)
    longer = train(task, rounds=5, algorithm="fedadam", out=str(out), callback=note)
    assert rounds == [0, 1, 2, 3, 4, 5]  # nothing was run twice
    assert first.x_sha256 == again.x_sha256
    assert longer.x_sha256 == whole.x_sha256
    assert first.summary()["run"] == str(out)
    assert [line["round"] for line in longer.train] == [1, 2, 3, 4, 5]

    assert_refused(lambda: train(task, algorithm="fedyogi", out=out), RunDirectoryError, path=out)

    model = linear()
    loaded = fedopt.load(out, model)
    assert (loaded.round, loaded.config.algorithm) == (5, "fedadam")
    assert torch.equal(loaded.x, longer.x)
    assert loaded.model is model and not model.training
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in model.parameters()]), longer.x)
    assert torch.equal(fedopt.load(out, linear(), round=3).x, first.x)


def test_load_refuses_missing_runs_and_rounds(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(make_task(), rounds=3, out=out)
    missing = tmp_path / "missing"
    assert_refused(lambda: fedopt.load(missing), RunDirectoryError, path=missing)
    assert_refused(lambda: fedopt.load(out), ModelError, what="model")
    assert_refused(lambda: fedopt.load(out, linear(), round=2), RunDirectoryError, path=out)
    assert_refused(lambda: fedopt.load(out, nn.Linear(FEATURES, 2)), ModelError, what="model")


def test_load_builds_the_model_of_a_built_in_task(tmp_path: Path) -> None:
    config = {
        "data.clients": 3,
        "clients_per_round": 1,
        "client.steps": 1,
        "client.batch_size": 4,
        "eval.sample": 20,
    }
    result = fedopt.run("emnist_cr", rounds=1, config=config, out=tmp_path / "run")
    loaded = fedopt.load(tmp_path / "run")
    assert torch.equal(loaded.x, result.x)
    assert loaded.model(torch.rand(2, 28, 28)).shape == (2, 62)
    assert result.params == 1_206_590


def test_run_starts_from_given_weights(tmp_path: Path) -> None:
    model, file = linear(), tmp_path / "weights.safetensors"
    save_file(dict(model.state_dict()), file)
    given = train(make_task(linear), init=file)
    assert given.x_sha256 == train(make_task(model)).x_sha256 != train(make_task(linear)).x_sha256


def test_frozen_weights_of_the_file_must_match_the_model(tmp_path: Path) -> None:
    """A frozen body from a file and a fresh head to train: the file's body must not be lost in silence."""

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES))
        model[0].requires_grad_(False)
        return model

    pretrained, file = build(), tmp_path / "weights.safetensors"
    save_file(dict(pretrained.state_dict()), file)
    try:
        found = train(make_task(build), init=file)
    except fedopt.UserError as error:
        assert str(file) in str(error) and "0.weight" in str(error)
        return
    assert found.x_sha256 == train(make_task(pretrained)).x_sha256


def test_dataset_that_is_not_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path))
    assert_refused(lambda: fedopt.run("shakespeare", data="shakespeare"), fedopt.UserError)


def test_callback_that_is_no_function_is_refused() -> None:
    assert_refused(lambda: train(make_task(), callback=3), ConfigError, keys=("callback",))
    assert_refused(lambda: train(make_task(), callback=[print, "x"]), ConfigError, keys=("callback",))


@pytest.mark.parametrize("call", [fedopt.run, fedopt.compare, fedopt.sweep])
def test_model_instead_of_a_task_is_refused(call: Callable[..., Any]) -> None:
    arguments = {} if call is fedopt.run else {"algorithms": ["fedavg"]}
    assert_refused(lambda: call(nn.Linear(2, 2), **arguments), ConfigError, keys=("task",))


def test_algorithm_may_be_given_by_position() -> None:
    assert fedopt.run(make_task(), "fedadam", rounds=1).algorithm == "fedadam"


def test_weights_instead_of_a_file_are_refused() -> None:
    assert_refused(lambda: fedopt.run(make_task(), init=linear().state_dict()), ConfigError)


def test_own_task_with_the_name_of_a_built_in_task_is_refused() -> None:
    assert_refused(lambda: train(make_task(name="so_lr")), ConfigError, keys=("name",))
