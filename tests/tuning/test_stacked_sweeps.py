"""Sweeps that train their trials together: every trial equals its own run, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from own_clients import CLASSES, FEATURES, make_task
from torch import Tensor, nn

import fedopt
from fedopt.algorithms import sgd
from fedopt.api.tuning import TuningResult
from fedopt.engine.loop import Step
from fedopt.errors import Diverged, UnknownName
from fedopt.runs import lockstep
from fedopt.runs.recorder import RunRecorder
from fedopt.runs.records import read_run
from fedopt.tuning.stacks import form_stacks
from fedopt.tuning.trials import Trial, WorkItem, make_trial

SETTINGS: dict[str, Any] = {
    "data.clients": 7,
    "clients_per_round": 4,
    "client.batch_size": 60,
    "eval.every": 2,
    "patience": 2,
}
ROUNDS = 5


def run_sweep(out: Path, algorithm: Any = "fedadam", grid: Any = None, **options: Any) -> TuningResult:
    grid = grid or {"client_lr": [-2.0, -1.0], "tau": [-3.0, -1.0]}
    options = {"config": SETTINGS, "rounds": ROUNDS, "executor": "vectorised", "keep": "all"} | options
    return fedopt.sweep("synthetic_lr", algorithm, grid, out=out, progress=False, **options)


def trials(result: TuningResult) -> list[Trial]:
    return [trial for a in result.sweep.algorithms for point in a.points for trial in point.trials]


def numbers(path: Path) -> dict[str, Any]:
    """Return everything that a run records, without times."""
    record = read_run(path)
    lines = [
        {key: value for key, value in line.items() if key != "seconds"}
        for line in (*record.train, *record.test)
    ]
    info = {key: record.info.get(key) for key in ("status", "x_sha256", "message", "value", "train_loss")}
    return {"lines": lines, **info, "rounds": record.rounds}


def run_alone(trial: Trial, out: Path) -> dict[str, Any]:
    """Execute a trial as a run of its own, and return its numbers."""
    request = trial.request
    try:
        fedopt.run(
            request.task,
            algorithm=request.algorithm,
            config=dict(request.settings),
            executor=request.executor.name,
            out=out,
            progress=False,
        )
    except Diverged:
        pass
    return numbers(out)


@pytest.mark.parametrize("algorithm", ["fedadam", "scaffold"])
def test_every_trial_equals_its_own_run(algorithm: str, tmp_path: Path) -> None:
    """Clients have different numbers of steps, and seeds have different cohorts."""
    grid = {"client_lr": [-2.0, -1.0], "server_lr": [-1.0, 0.0]}
    result = run_sweep(tmp_path / "sweep", algorithm, grid, seeds=[0, 1])
    done = trials(result)
    assert len({trial.path for trial in done}) == 8
    assert len({numbers(trial.path)["x_sha256"] for trial in done}) == 8
    for number in (0, 3, 5, 6):  # each rate and each seed twice
        assert numbers(done[number].path) == run_alone(done[number], tmp_path / f"{number}")


class RandomFeatures(nn.Module):
    """A model with a random tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.randn(FEATURES, 8)
        self.dense = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense((x @ self.projection).cos())
        return out


def test_trials_with_random_features_equal_their_own_runs(tmp_path: Path) -> None:
    result = fedopt.sweep(
        make_task(RandomFeatures),
        "fedavg",
        {"client_lr": [-1.0]},
        seeds=[1, 2],
        rounds=2,
        executor="vectorised",
        out=tmp_path / "sweep",
        keep="all",
        progress=False,
    )
    for number, trial in enumerate(trials(result)):
        assert numbers(trial.path) == run_alone(trial, tmp_path / f"{number}")


def test_compiled_trials_equal_their_own_runs(tmp_path: Path) -> None:
    """The compiled step of a stack has other shapes than that of a single run. `auto` chooses `compiled`."""
    grid = {"client_lr": [-2.0, -1.0]}
    settings = SETTINGS | {"client.steps": 2, "client.batch_size": 5}
    result = run_sweep(tmp_path / "sweep", "fedavg", grid, rounds=2, config=settings, executor="auto")
    assert [trial.request.executor.name for trial in trials(result)] == ["compiled", "compiled"]
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text())["executor"] == "compiled"
    for number, trial in enumerate(trials(result)):
        assert numbers(trial.path) == run_alone(trial, tmp_path / f"{number}")


def test_diverged_trials_are_recorded_and_the_others_continue(tmp_path: Path) -> None:
    result = run_sweep(tmp_path / "sweep", "fedavg", {"client_lr": [-2.0, 38.0], "server_lr": [0.0]})
    sound, diverged = trials(result)
    assert numbers(sound.path)["status"] == "done" and numbers(diverged.path)["status"] == "diverged"
    assert numbers(diverged.path)["rounds"] == SETTINGS["patience"]
    for number, trial in enumerate((sound, diverged)):
        assert numbers(trial.path) == run_alone(trial, tmp_path / f"{number}")


class Killed(BaseException):
    """Ends a sweep without any clean-up by fedopt."""


def kill_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the next sweep after this number of steps of all trials together."""
    original = RunRecorder.add
    done: list[Step] = []

    def add(recorder: RunRecorder, step: Step, seconds: float) -> None:
        original(recorder, step, seconds)
        done.append(step)
        if len(done) == steps:
            raise Killed

    monkeypatch.setattr(RunRecorder, "add", add)


def test_killed_sweep_continues_from_the_checkpoints_of_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four trials: four evaluations, then rounds 1 to 3 of each, then a part of round 4."""
    monkeypatch.setattr(lockstep, "CHECKPOINT_SECONDS", 0.0)
    config = SETTINGS | {"checkpoint.every": 1}
    expected = {t.path.name: numbers(t.path) for t in trials(run_sweep(tmp_path / "whole", config=config))}
    with monkeypatch.context() as patched:
        kill_after(4 + 4 * 3 + 2, patched)
        with pytest.raises(Killed):
            run_sweep(tmp_path / "sweep", config=config)
    continued = []
    for trial in trials(run_sweep(tmp_path / "sweep", config=config)):
        assert numbers(trial.path) == expected[trial.path.name]
        segments = json.loads((trial.path / "run.json").read_text())["segments"]
        continued.append([segment["after_round"] for segment in segments])
    assert sorted(continued) == [[0, 3], [0, 3], [0, 4], [0, 4]]


def test_halving_continues_stacked_trials(tmp_path: Path) -> None:
    grid = {"client_lr": [-3.0, -2.5, -2.0, -1.5, -1.0]}
    result = run_sweep(tmp_path / "sweep", "fedavg", grid, rounds=9, search="halving")
    statuses = sorted(numbers(trial.path)["status"] for trial in trials(result))
    assert statuses == ["done", "done", "pruned", "pruned", "pruned"]
    best = result.best["fedavg"]
    (trial,) = (trial for trial in trials(result) if trial.path in best.runs)
    assert numbers(trial.path)["x_sha256"] == run_alone(trial, tmp_path / "alone")["x_sha256"]


def test_results_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    one, two = (run_sweep(tmp_path / f"{n}", workers=n, rounds=2) for n in (1, 2))
    for a, b in zip(trials(one), trials(two), strict=True):
        assert numbers(a.path) == numbers(b.path)


def test_trials_that_cannot_be_stacked_run_one_after_the_other(tmp_path: Path) -> None:
    def own_client(work: fedopt.Work, x: fedopt.Vector) -> fedopt.ClientResult:
        x_i = x
        for batch in work.batches():
            x_i = x_i - work.round.eta_l * work.gradient(x_i, batch)
        return fedopt.ClientResult((x_i - x,))

    server = fedopt.algorithms.fedopt(sgd(), sgd())
    algorithm = server._replace(client=own_client)
    result = fedopt.sweep(
        make_task(),
        algorithm,
        {"client_lr": [-2.0, -1.0]},
        rounds=2,
        executor="vectorised",
        out=tmp_path / "sweep",
        progress=False,
    )
    done = [numbers(trial.path) for trial in trials(result)]
    assert [one["status"] for one in done] == ["done", "done"]
    assert done[0]["x_sha256"] != done[1]["x_sha256"]


def test_stacks_have_common_configurations_and_a_limited_size() -> None:
    def item(seed: int, epochs: int, executor: str | None = "compiled", **rates: float) -> WorkItem:
        settings = {"seed": seed, "client.epochs": epochs}
        trial = make_trial(Path("t"), "synthetic_lr", "fedadam", rates, settings, executor=executor)
        return WorkItem(trial, trial.config.rounds)

    items = [
        item(s, e, client_lr=lr, tau=t) for s in (0, 1) for e in (1, 2) for lr in (-2, -1) for t in (-3, -2)
    ]
    stacks = form_stacks(items, workers=1)
    assert sorted(map(len, stacks)) == [8, 8]
    for stack in stacks:
        assert len({one.trial.config.client.epochs for one in stack}) == 1
    assert sorted(map(len, form_stacks(items, workers=3))) == [2, 2, 3, 3, 3, 3]
    many = [item(seed, 1) for seed in range(130)]
    assert sorted(map(len, form_stacks(many, workers=1))) == [42, 44, 44]
    assert form_stacks([item(0, 1, None), item(1, 1, None)], workers=1) == [
        (item(0, 1, None),),
        (item(1, 1, None),),
    ]


def test_unknown_executor_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        run_sweep(tmp_path / "sweep", executor="threads")
    assert caught.value.name == "threads"
    assert not (tmp_path / "sweep").exists()
