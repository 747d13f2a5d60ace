"""`fedopt.resume` and `fedopt resume`: the directory is the only argument."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from own_clients import SETTINGS, assert_refused, make_task, train
from typed import fedopt as command
from typed import refused
from user_project import Project, write_project
from written import read_info

import fedopt
from fedopt.engine.loop import Step
from fedopt.errors import RunDirectoryError


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return write_project(tmp_path_factory.mktemp("project"), 2000)


@pytest.fixture(autouse=True)
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    monkeypatch.syspath_prepend(project.root)


CONFIG = {"clients_per_round": 3, "client.batch_size": 5, "checkpoint.every": 1}


def stop_after(rounds: int):  # noqa: ANN201
    def stop(step: Step) -> object:
        return fedopt.STOP if step.position.round == rounds else None

    return stop


def test_stopped_run_is_resumed_with_its_options(project: Project, tmp_path: Path) -> None:
    options = {"algorithm": project.algorithm, "rounds": 4, "config": CONFIG | {"client.scale": 0.5}}
    whole = fedopt.run(project.task, **options)
    fedopt.run(project.task, **options, out=tmp_path / "run", callback=stop_after(2))
    assert len(read_info(tmp_path / "run")["command"]) == 0
    resumed = fedopt.resume(tmp_path / "run")
    assert isinstance(resumed, fedopt.RunResult)
    assert (resumed.rounds, resumed.x_sha256) == (4, whole.x_sha256)
    again = command("resume", tmp_path / "run", "--json", "--executor", "serial")
    assert json.loads(again.out)["x_sha256"] == whole.x_sha256


def test_comparison_starts_the_runs_that_are_missing(project: Project, tmp_path: Path) -> None:
    choices, out = ["fedavg", project.algorithm], tmp_path / "comparison"
    whole = fedopt.compare(project.task, choices, rounds=2, seeds=[0, 1], config=CONFIG, out=out)
    shutil.rmtree(whole.paths[-1])
    (out / "report.html").unlink()
    done = command("resume", out, "--json", "--executor", "serial")
    assert done.code == 0, done.err
    runs = json.loads(done.out)["runs"]
    assert [run["x_sha256"] for run in runs] == [result.x_sha256 for result in whole.results]
    assert (out / "report.html").is_file()


def test_seeds_are_resumed(project: Project, tmp_path: Path) -> None:
    sets = [word for key, value in CONFIG.items() for word in ("--set", f"{key}={value}")]
    words = ("--seeds", "0:2", "--rounds", "2", "--executor", "serial", "--json", "--out", tmp_path / "seeds")
    first = json.loads(command("run", project.task, *sets, *words).out)
    shutil.rmtree(tmp_path / "seeds" / "seed-1")
    second = json.loads(command("resume", tmp_path / "seeds", "--executor", "serial", "--json").out)
    assert [run["x_sha256"] for run in second["runs"]] == [run["x_sha256"] for run in first["runs"]]


def test_sweep_runs_the_trials_that_are_missing(project: Project, tmp_path: Path) -> None:
    out, grid = tmp_path / "sweep", {"client.scale": [0.5, 1.0]}
    options = {"rounds": 2, "config": CONFIG, "search": "optuna", "trials": 2, "keep": "all", "workers": 1}
    whole = fedopt.sweep(project.task, project.algorithm, grid, out=out, **options)
    trial = next((out / "trials").iterdir())
    sha = read_info(trial)["x_sha256"]
    shutil.rmtree(trial)
    resumed = fedopt.resume(out, workers=1)
    assert isinstance(resumed, fedopt.TuningResult)
    assert resumed.best == whole.best
    assert read_info(trial)["x_sha256"] == sha


def test_directory_that_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    refused(command("resume", tmp_path / "nothing"), "nothing", "comparison")
    train(make_task(), out=tmp_path / "own")
    assert_refused(lambda: fedopt.resume(tmp_path / "own"), RunDirectoryError, path=tmp_path / "own")
    group = fedopt.compare(make_task(), ["fedavg"], rounds=1, config=SETTINGS, out=tmp_path / "group")
    assert_refused(lambda: fedopt.resume(group.out), RunDirectoryError, path=group.out)
    (group.out / "group.json").write_text('{"kind": "comparison"')
    assert_refused(lambda: fedopt.resume(group.out), RunDirectoryError, path=group.out)
