"""Sweeps from request to files: searches, changed numbers of rounds, invalid requests and directories."""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import pytest
from sweeps import (
    GRID,
    ROUNDS,
    SETTINGS,
    find_trials,
    modification_times,
    read_info,
    read_losses,
    read_table,
    run_command_of,
    run_sweep,
    sweep_words,
)
from typed import fedopt, refused
from written import remove_checksums

from fedopt import load
from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import ConfigError, MissingExtra, RunDirectoryError, UnknownName, UserError
from fedopt.tuning.command import sweep
from fedopt.tuning.request import SweepRequest


def make_request(**changes: Any) -> SweepRequest:
    """The request of the finished sweep; client__steps=2 changes a setting."""
    fields = {name: changes.pop(name) for name in list(changes) if name in SweepRequest._fields}
    settings = {**SETTINGS, "rounds": ROUNDS, **{k.replace("__", "."): v for k, v in changes.items()}}
    return SweepRequest(
        **{"task": "so_lr", "algorithms": ("fedavg",), "grid": GRID, "settings": settings} | fields
    )


# -- searches


@pytest.mark.parametrize("search", ["halving", "optuna"])
def test_search_uses_trials_on_disk(copy: Path, search: str) -> None:
    before = modification_times(copy)
    summary = run_sweep(copy, "--search", search, *(["--trials", "3"] if search == "optuna" else []))
    assert modification_times(copy) == before
    assert summary["algorithms"]["fedavg"]["best"]["point"]["client_lr"] in (1.0, 2.0)


def test_halving_continues_survivors_and_stops_the_others(tmp_path: Path) -> None:
    out, grid = tmp_path / "halving", "client_lr=0|1|2"
    summary = run_sweep(out, "--search", "halving", "--workers", "1", grid=grid, rounds=6)
    rows = read_table(out)
    assert [(row["status"], row["rounds"]) for row in rows] == [
        ("done", "6"),
        ("pruned", "2"),
        ("pruned", "2"),
    ]
    assert summary["rounds_run"] == 6 + 2 + 2
    best = out / rows[0]["directory"]
    # the score at rung 2 is the mean over its second half, which is round 2
    assert read_losses(best)[1] == min(read_losses(out / row["directory"])[1] for row in rows)
    assert run_command_of(best, tmp_path / "alone")["x_sha256"] == read_info(best)["x_sha256"]
    pruned = out / rows[1]["directory"]
    complete = run_command_of(pruned, tmp_path / "pruned")  # begins with the same rounds
    assert complete["rounds"] == 6 and read_losses(tmp_path / "pruned")[:2] == read_losses(pruned)
    # the state after a kill between the last round and the status
    remove_checksums(pruned, status="running")
    run_sweep(out, "--search", "halving", grid=grid, rounds=6)
    assert read_info(pruned)["status"] == "pruned" and read_table(out) == rows


# -- other numbers of rounds


def test_fewer_rounds_are_scored_like_a_shorter_run(copy: Path) -> None:
    before = modification_times(copy)
    result = run_sweep(copy, rounds=3)["algorithms"]["fedavg"]
    best = result["best"]
    assert modification_times(copy) == before
    expected = [fmean(read_losses(find_trials(copy)[name])[:3]) for name in ("fedavg 1", "fedavg 2")]
    assert best["score"] == pytest.approx(min(expected), rel=1e-12)
    # trials were evaluated after 2 and 4 rounds, so the metric after 3 is unknown
    assert (best["value"], best["last"], result["ease_of_tuning"]["near_best"]) == (None, None, 0)
    with pytest.raises(RunDirectoryError) as error:
        sweep(make_request(select="recall_at_5", rounds=3), ExecutorOptions(), copy)
    assert error.value.path in find_trials(copy).values()
    assert "rounds=4" in str(error.value)


def test_more_rounds_extend_trials(copy: Path, tmp_path: Path) -> None:
    run_sweep(copy, "--workers", "1", "--keep", "all", rounds=ROUNDS + 2)
    trials = find_trials(copy)
    assert read_info(trials["fedavg 38"])["status"] == "diverged"
    for name in ("fedavg 1", "fedavg 2"):  # one has its checkpoints, the other starts again
        result = run_command_of(trials[name], tmp_path / name)
        assert result["rounds"] == ROUNDS + 2 == len(read_losses(trials[name]))
        assert result["x_sha256"] == read_info(trials[name])["x_sha256"]
        assert load(trials[name]).round == ROUNDS + 2  # --keep all


# -- invalid requests


@pytest.mark.parametrize(
    ("changes", "kind", "fields"),
    [
        ({"task": "so_rl"}, UnknownName, {"name": "so_rl"}),
        ({"grid": "cleint_lr=1"}, UnknownName, {"name": "cleint_lr"}),
        ({"grid": ""}, ConfigError, {"keys": ("grid",)}),
        ({"grid": "client_lr=1:0:1"}, ConfigError, {"keys": ("client_lr",)}),
        ({"grid": "tau=-2"}, ConfigError, {"keys": ("server.tau",)}),
        (
            {"grid": "tau=-2|-1", "algorithms": ("fedadagrad", "fedavgm")},
            ConfigError,
            {"keys": ("server.tau",)},
        ),
        ({"grid": "client.lrr=1|2"}, UserError, {}),
        ({"grid": "client.lr=-1|0"}, UserError, {}),
        ({"grid": "client_lr=1", "client__lr": 0.1}, ConfigError, {"keys": ("client.lr",)}),
        ({"grid": "server.momentum=0.5"}, UserError, {}),
        ({"algorithms": ()}, ConfigError, {"keys": ("algorithm",)}),
        ({"algorithms": ("fedavg", "fedavg")}, ConfigError, {"keys": ("algorithm",)}),
        ({"algorithms": ("fedagv",)}, UnknownName, {"name": "fedagv"}),
        ({"select": "accuracy"}, UnknownName, {"name": "accuracy"}),
        ({"search": "halfing"}, UnknownName, {"name": "halfing"}),
        ({"search": "halving", "seeds": (0, 1, 2)}, ConfigError, {"keys": ("seeds",)}),
        ({"keep": "none"}, UnknownName, {"name": "none"}),
        ({"trials": 3}, ConfigError, {"keys": ("trials",)}),
        ({"search": "optuna", "trials": 0}, ConfigError, {"keys": ("trials",)}),
        ({"rounds": 0}, UserError, {}),
        ({"clients__per__round": 3}, UserError, {}),
    ],
    ids=str,
)
def test_invalid_request_is_refused_before_anything_is_written(
    changes: dict[str, Any], kind: type[UserError], fields: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(kind) as error:
        sweep(make_request(**changes), ExecutorOptions(), tmp_path / "out")
    assert {name: getattr(error.value, name) for name in fields} == fields
    assert not (tmp_path / "out").exists()


def test_number_of_workers_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        sweep(make_request(), ExecutorOptions(workers=0), tmp_path / "out")
    assert error.value.keys == ("workers",) and not (tmp_path / "out").exists()


def test_missing_optuna_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with patch.dict(sys.modules, {"optuna": None}), pytest.raises(MissingExtra):
        sweep(make_request(search="optuna"), ExecutorOptions(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (sweep_words("--search", "halfing"), "did you mean 'halving'"),
        (sweep_words(grid="tau=-2|-1", algorithm="fedadagrad,fedavgm"), "leave fedavgm out"),
        (sweep_words("--seeds", "3:3"), "--seeds"),
        (sweep_words("--seeds", "0:2", "--seed", "1"), "--seed and --seeds"),
        (sweep_words("--seeds", "0:2", seed=1), "--set seed and --seeds"),
        (sweep_words("--workers", "0"), "workers must be at least 1"),
    ],
)
def test_command_reports_a_mistake_in_one_line(words: list[str], expected: str, tmp_path: Path) -> None:
    refused(fedopt(*words, "--out", tmp_path / "out"), expected)
    assert not (tmp_path / "out").exists()


# -- directories


def test_directory_with_other_contents_is_not_changed(tmp_path: Path, copy: Path) -> None:
    file, foreign = tmp_path / "file", tmp_path / "foreign"
    file.write_text("mine")
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    plan = json.loads((copy / "sweep.json").read_text())
    for path in (file, foreign):
        with pytest.raises(RunDirectoryError) as error:
            sweep(make_request(), ExecutorOptions(), path)
        assert error.value.path == path
    assert [entry.name for entry in foreign.iterdir()] == ["thesis.tex"]
    for content in (json.dumps(plan | {"task": "emnist_cr"}), "{"):
        (copy / "sweep.json").write_text(content)
        with pytest.raises(RunDirectoryError) as error:
            sweep(make_request(), ExecutorOptions(), copy)
        assert error.value.path == copy
        assert (copy / "sweep.json").read_text() == content


def test_directory_in_use_is_refused(copy: Path) -> None:
    with open(copy / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunDirectoryError) as error:
            sweep(make_request(), ExecutorOptions(), copy)
    assert error.value.path == copy


@pytest.mark.parametrize(
    ("file", "content"),
    [("run.json", "{"), ("metrics.jsonl", '{"round": 1}\n{"round": 2}\n'), ("config.toml", "a=")],
)
def test_damaged_trial_is_named_with_the_remedy(copy: Path, file: str, content: str) -> None:
    trial = find_trials(copy)["fedavg 1"]
    (trial / file).write_text(content)
    with pytest.raises(RunDirectoryError) as error:
        sweep(make_request(), ExecutorOptions(), copy)
    assert error.value.path == trial
    assert f"{trial}/{file}" in str(error.value) and f"remove {trial}" in str(error.value)
    if file == "run.json":
        others = [path for path in (copy / "trials").iterdir() if path != trial]
        before = {path: read_info(path)["status"] for path in others}
        shutil.rmtree(trial)
        run_sweep(copy, "--workers", "1")
        assert read_info(trial)["status"] == "done"
        assert {path: read_info(path)["status"] for path in others} == before
