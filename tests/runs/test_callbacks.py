"""Callbacks: what they receive, `fedopt.STOP`, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from own_clients import make_task, train
from written import read_info, read_lines

import fedopt
from fedopt.engine.loop import Step
from fedopt.errors import ModelError

RARE_CHECKPOINTS = {"checkpoint.every": 100}


def stop_after(round: int):
    return lambda step: fedopt.STOP if step.position.round == round else None


def test_all_callbacks_of_a_list_are_called_and_one_can_stop_the_run() -> None:
    seen: dict[str, list[int]] = {"before": [], "after": []}
    result = train(
        make_task(),
        rounds=5,
        callback=[
            lambda step: seen["before"].append(step.position.round),
            stop_after(2),
            lambda step: seen["after"].append(step.position.round),
        ],
    )
    assert seen == {"before": [0, 1, 2], "after": [0, 1, 2]}
    assert result.rounds == 2 and len(result.train) == 2


def test_other_return_values_are_ignored() -> None:
    assert train(make_task(), rounds=2, callback=lambda step: step).rounds == 2


@pytest.mark.parametrize("algorithm", ["fedyogi", "scaffold"])
def test_stopped_run_continues_to_the_result_of_an_uninterrupted_run(algorithm: str, tmp_path: Path) -> None:
    out, task = tmp_path / "run", make_task()
    options = {"rounds": 5, "algorithm": algorithm, "config": RARE_CHECKPOINTS}
    first = train(task, out=out, callback=stop_after(3), **options)
    info = read_info(out)
    assert (info["status"], info["rounds"], info["rounds_done"]) == ("stopped", 5, 3)
    assert info["train_loss"] == first.train_loss
    assert torch.equal(fedopt.load(out, task.model(), round=3).x, first.x)
    rounds: list[int] = []
    last = train(task, out=out, callback=lambda step: rounds.append(step.position.round), **options)
    whole = train(task, out=tmp_path / "whole", **options)
    assert rounds == [4, 5], "no round runs twice"
    assert last.x_sha256 == whole.x_sha256
    assert read_lines(out) == read_lines(tmp_path / "whole")
    assert read_info(out)["status"] == "done" and "rounds_done" not in read_info(out)


def test_stop_in_the_last_round_finishes_the_run(tmp_path: Path) -> None:
    train(make_task(), rounds=2, out=tmp_path / "run", callback=stop_after(2))
    assert read_info(tmp_path / "run")["status"] == "done"


def test_stop_before_the_first_round(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(make_task(), rounds=2, out=out, callback=stop_after(0)).rounds == 0
    assert read_info(out)["status"] == "stopped"
    assert train(make_task(), rounds=2, out=out).x_sha256 == train(make_task(), rounds=2).x_sha256


def test_error_of_a_callback_names_it_and_keeps_a_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def plot_curve(step: Step) -> None:
        if step.position.round == 2:
            raise ValueError("no\ndisplay")

    with pytest.raises(ModelError) as error:
        train(make_task(), rounds=4, out=out, callback=plot_curve, config=RARE_CHECKPOINTS)
    assert error.value.what.endswith("plot_curve") and error.value.round == 2
    assert isinstance(error.value.__cause__, ValueError)
    assert "\n" not in str(error.value) and "plot_curve" in str(error.value)
    assert read_info(out)["status"] == "failed"
    rounds: list[int] = []
    again = train(
        make_task(),
        rounds=4,
        out=out,
        callback=lambda step: rounds.append(step.position.round),
        config=RARE_CHECKPOINTS,
    )
    assert rounds == [3, 4] and again.x_sha256 == train(make_task(), rounds=4).x_sha256


def test_vectors_of_a_step_stay_valid() -> None:
    steps: list[Step] = []
    train(make_task(), rounds=3, callback=steps.append)
    for step, rounds in zip(steps[1:], (1, 2, 3), strict=True):
        assert torch.equal(step.position.state.x, train(make_task(), rounds=rounds).x)


def test_callback_that_trains_a_module_on_x_does_not_change_the_run() -> None:
    """vector_to_parameters makes the parameters views of the vector that the callback receives."""
    model = torch.nn.Linear(60, 10)
    settings: dict[str, Any] = {"rounds": 2, "config": {"client.steps": 1}}

    def fine_tune(step: Step) -> None:
        torch.nn.utils.vector_to_parameters(step.position.state.x, model.parameters())
        torch.optim.SGD(model.parameters(), 1.0).step(lambda: model(torch.ones(1, 60)).sum().backward())

    expected = fedopt.run("synthetic_lr", **settings)
    assert torch.equal(fedopt.run("synthetic_lr", callback=fine_tune, **settings).x, expected.x)
