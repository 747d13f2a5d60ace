"""The results of a sweep against its run directories: scores, best points, tables and files."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from html import unescape
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from sweeps import (
    ROUNDS,
    SQUARE,
    find_trials,
    modification_times,
    read_info,
    read_losses,
    read_table,
    run_command_of,
    run_sweep,
    sweep_words,
)
from typed import fedopt
from written import read_lines

from fedopt import load
from fedopt.errors import UserError

T_1 = 12.70620  # Student's t with one degree of freedom, 97.5 % quantile, from the table


def test_table_equals_the_run_directories(finished: Any) -> None:
    rows = read_table(finished.out)
    assert len(rows) == 6 == len(list((finished.out / "trials").iterdir()))
    for row in rows:
        trial = finished.out / row["directory"]
        info = read_info(trial)
        assert row["status"] == info["status"]
        if row["client_lr"] == "38.0":
            assert (row["status"], row["train_loss"], row["recall_at_5"]) == ("diverged", "", "")
            assert int(row["rounds"]) < ROUNDS
        else:
            assert (row["status"], row["rounds"]) == ("done", str(ROUNDS))
            assert float(row["train_loss"]) == pytest.approx(fmean(read_losses(trial)), rel=1e-12)
            assert float(row["train_loss"]) == pytest.approx(info["train_loss"], rel=1e-12)
            assert float(row["recall_at_5"]) == read_lines(trial, "test")[-1]["recall_at_5"]
            assert float(row["recall_at_5_mean"]) == pytest.approx(info["value"], rel=1e-12)


def test_best_trial_has_the_smallest_mean_train_loss_and_keeps_its_model(finished: Any) -> None:
    for algorithm in ("fedavg", "fedadagrad"):
        result = finished.summary["algorithms"][algorithm]
        assert (result["trials"], result["diverged"], result["rounds"]) == (3, 1, ROUNDS)
        rows = [
            row for row in read_table(finished.out) if row["algorithm"] == algorithm and row["train_loss"]
        ]
        smallest = min(rows, key=lambda row: float(row["train_loss"]))
        assert result["best"]["run"] == [str(finished.out / smallest["directory"])]
        assert result["best"]["score"] == float(smallest["train_loss"])
        assert result["best"]["point"]["client_lr"] == float(smallest["client_lr"])
        assert (result["best"]["score_half"], result["best"]["score_n"]) == (None, 1)
        for row in rows:
            trial = finished.out / row["directory"]
            if row is smallest:
                assert load(trial).round == ROUNDS
            else:
                with pytest.raises(UserError):
                    load(trial)


def test_trial_is_bit_identical_to_its_command(finished: Any, tmp_path: Path) -> None:
    for name in ("fedavg 1", "fedadagrad 2"):
        trial = find_trials(finished.out)[name]
        result, info = run_command_of(trial, tmp_path / name), read_info(trial)
        assert result["x_sha256"] == info["x_sha256"]
        assert (result["train_loss"], result["value"]) == (info["train_loss"], info["value"])


def test_command_restores_the_model_of_a_trial_without_checkpoints(copy: Path) -> None:
    others = [path for path in (copy / "trials").iterdir() if not (path / "checkpoints").is_dir()]
    trial = next(path for path in others if read_info(path)["status"] == "done")
    before = read_info(trial)["x_sha256"]
    words = shlex.split(read_info(trial)["command"])
    words[words.index("--out") + 1] = str(trial)
    assert fedopt(*words[1:], "--executor", "serial").code == 0
    assert read_info(trial)["x_sha256"] == before and load(trial).round == ROUNDS


def test_finished_sweep_selects_by_another_metric_without_running(copy: Path) -> None:
    before = modification_times(copy)
    summary = run_sweep(copy, "--select", "recall_at_5", algorithm="fedavg,fedadagrad")
    assert modification_times(copy) == before
    for algorithm, result in summary["algorithms"].items():
        values = [
            float(row["recall_at_5_mean"])
            for row in read_table(copy)
            if row["algorithm"] == algorithm and row["recall_at_5"]
        ]
        assert result["best"]["score"] == result["best"]["value"] == max(values)


@pytest.mark.parametrize("algorithms", ["fedavg,fedadagrad", "fedadagrad,fedavg"])
def test_next_command_names_the_winner_of_all_algorithms(copy: Path, algorithms: str) -> None:
    printed = fedopt(*sweep_words("--out", copy, algorithm=algorithms)).out
    rows = [row for row in read_table(copy) if row["train_loss"]]
    winner = min(rows, key=lambda row: float(row["train_loss"]))
    assert printed.splitlines()[-1] == f"evaluate the best: fedopt eval {copy / winner['directory']}"
    assert f"{winner['algorithm']} at client_lr=" in printed.splitlines()[0]


def mean_evaluation(trial: Path, key: str, rounds: int) -> float:
    """The mean over the evaluations of the first rounds, without the initial model."""
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    return fmean(x[key] for x in lines if x["split"] == "test" and 1 <= x["round"] <= rounds)


@pytest.mark.parametrize(
    ("select", "measure", "distance"),
    [
        ("train_loss", "recall_at_5", "1 percentage point"),
        ("loss", "loss", "10 %"),
        ("recall_at_5", "recall_at_5", "1 percentage point"),
    ],
)
@pytest.mark.parametrize("rounds", [2, ROUNDS])
def test_share_near_the_best_is_the_same_in_table_json_and_report(
    square: Path, tmp_path: Path, select: str, measure: str, distance: str, rounds: int
) -> None:
    out = shutil.copytree(square, tmp_path / "sweep")
    words = sweep_words("--out", out, "--select", select, grid=SQUARE, algorithm="fedadagrad", rounds=rounds)
    done = fedopt(*words)
    values = [mean_evaluation(trial, measure, rounds) for trial in (out / "trials").iterdir()]
    if measure == "loss":
        best, near = min(values), [value <= 1.1 * min(values) + 1e-12 for value in values]
    else:
        best, near = max(values), [value >= max(values) - 0.01 - 1e-12 for value in values]
    name = measure.replace("_at_", "@")
    (row,) = [line for line in done.out.splitlines() if line.startswith("fedadagrad  ")]
    assert row.rstrip().endswith(f" {sum(near) / 4 * 100:.0f} %")
    printed = " ".join(done.out.split())
    assert f"whose mean {name} is within {distance} of the best trial of all algorithms" in printed
    summary = json.loads(fedopt(*words, "--json").out)
    ease = summary["algorithms"]["fedadagrad"]["ease_of_tuning"]
    assert (ease["near_best"], ease["trials"], ease["beats_fedavg"]) == (sum(near), 4, None)
    assert (ease["measure"], ease["distance"]) == (measure, distance)
    assert ease["sorted_values"] == pytest.approx(sorted(values, reverse=measure != "loss"))
    shown = f"{best:.4f}" if measure == "loss" else f"{best * 100:.1f} %"
    for _ in range(2):  # the report of the sweep, and that of `fedopt report`, which reads complete runs
        page = (out / "report.html").read_text().rpartition('id="rates"')[2].partition('id="results"')[0]
        text = re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", page)))
        assert f"shows its mean {name}:" in text and f"best mean {name} with rates" in text
        assert re.search(rf"fedadagrad {shown} .* {sum(near) * 25} % {sum(near)} of 4", text), text
        selected = "train loss" if select == "train_loss" else f"best mean {name}"
        assert f"{selected}, the selection criterion of this sweep" in text
        if rounds < ROUNDS:
            break
        assert fedopt("report", out).code == 0


def test_several_seeds_are_compared_by_their_mean(tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    words = sweep_words("--out", out, "--workers", "1", "--seeds", "3:5", grid="client_lr=1|2", rounds=2)
    done = fedopt(*words)
    assert done.code == 0, done.err
    assert "interval over 2 seeds" in " ".join(done.out.split()) and "±" in done.out
    rows = read_table(out)
    for row in rows:
        trials = [out / name for name in row["directory"].split()]
        assert [read_info(trial)["seed"] for trial in trials] == [3, 4]
        assert float(row["train_loss"]) == pytest.approx(fmean(read_info(t)["train_loss"] for t in trials))
        for name, key in (("train_loss", "train_loss"), ("recall_at_5", "value")):
            a, b = (read_info(trial)[key] for trial in trials)
            # s / sqrt(2) of two values is half their distance
            assert float(row[f"{name}_half"]) == pytest.approx(T_1 * abs(a - b) / 2, rel=1e-5)
        assert row["seeds"] == "2"
    assert float(rows[0]["train_loss"]) < float(rows[1]["train_loss"])
    summary = run_sweep(out, "--seeds", "3:5", grid="client_lr=1|2", rounds=2)
    best = summary["algorithms"]["fedavg"]["best"]
    assert (best["score"], best["score_half"], best["value"], best["value_half"]) == tuple(
        float(rows[0][name]) for name in ("train_loss", "train_loss_half", "recall_at_5", "recall_at_5_half")
    )
    assert best["score_n"] == best["value_n"] == 2
    assert len([p for p in out.rglob("checkpoints") if p.is_dir()]) == 2  # both seeds of the best point


def test_omitted_tau_axis_is_noted(finished: Any, copy: Path) -> None:
    (note,) = finished.summary["remarks"]
    assert note == "fedavg has no tau, so its grid has the 3 points of client_lr and server_lr"
    done = fedopt(*sweep_words("--out", copy, algorithm="fedavg,fedadagrad"))
    assert note in done.out.splitlines() and note in done.err.splitlines()
    assert "no tau" not in fedopt(*sweep_words("--out", copy, algorithm="fedadagrad")).out
