"""The command `fedopt run`."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typed import (
    WRITERS,
    FinishedRun,
    fedopt,
    files_up_to,
    refused,
    run_small,
    small_command,
    temporary_files,
)
from written import read_lines

from fedopt import version


def test_show_config_prints_the_configuration_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fedopt(
        *small_command("run", "--algorithm", "fedyogi", "--seed", "7", "--show-config", server__tau=0.01)
    )
    assert (done.code, done.err.splitlines()[0]) == (0, "emnist_cr · fedyogi · synthetic")
    config = tomllib.loads(done.out)
    assert (config["task"], config["algorithm"], config["seed"]) == ("emnist_cr", "fedyogi", 7)
    assert (config["server"]["tau"], config["data"]["clients"]) == (0.01, WRITERS)
    assert list(tmp_path.iterdir()) == []


def test_command_prints_one_json_object_on_stdout_and_progress_on_stderr(tmp_path: Path) -> None:
    """With a worker process, started as users start it; the result is that of one process."""
    out = tmp_path / "run"
    words = [
        str(word) for word in small_command("run", "--json", "--out", out, "--rounds", "3", "--seed", "1")
    ]
    words[words.index("serial")] = "processes"
    command = [sys.executable, "-W", "error", "-m", "fedopt", *words, "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    summary = json.loads(done.stdout)  # nothing else is on stdout
    assert done.stdout.count("\n") == 1
    required = "task algorithm rounds seed train_loss metric value params x_sha256 seconds".split()
    assert set(required) <= set(summary)
    expected = {"task": "emnist_cr", "algorithm": "fedavg", "rounds": 3, "seed": 1, "metric": "accuracy"}
    assert {key: summary[key] for key in expected} == expected
    assert summary["params"] == 1_206_590
    losses = [line["loss"] for line in read_lines(out, "train")]
    values = [line["accuracy"] for line in read_lines(out, "test") if line["round"] > 0]
    assert summary["train_loss"] == pytest.approx(sum(losses) / 3)
    assert summary["value"] == pytest.approx(sum(values) / 3)
    assert re.fullmatch("[0-9a-f]{64}", summary["x_sha256"])
    assert "round 3/3" in done.stderr and "loss" in done.stderr

    serial = run_small(tmp_path / "serial", "--seed", "1")
    assert json.loads(serial.out)["x_sha256"] == summary["x_sha256"]
    assert temporary_files(tmp_path) == []


def test_result_is_printed_as_text_without_json(finished_run: FinishedRun) -> None:
    done = fedopt(*small_command("run", "--out", finished_run.path, "--rounds", "3"))
    assert done.code == 0
    for word in (
        "emnist_cr fedavg, 3 rounds, seed 0",
        "accuracy",
        "train loss",
        "1,206,590",
        str(finished_run.path),
    ):
        assert word in done.out


def test_run_directory_has_config_metrics_and_command(finished_run: FinishedRun) -> None:
    names = {entry.name for entry in finished_run.path.iterdir() if not entry.name.startswith(".")}
    assert names == {"config.toml", "data.json", "metrics.jsonl", "run.json", "checkpoints"}
    info = json.loads((finished_run.path / "run.json").read_text())
    assert info["status"] == "done"
    assert info["command"].startswith("fedopt run emnist_cr --executor serial --set data.clients=4")
    assert info["fedopt"] == version.__version__
    assert info["x_sha256"] == finished_run.summary["x_sha256"]
    assert [line["round"] for line in read_lines(finished_run.path, "train")] == [1, 2, 3]
    assert [line["round"] for line in read_lines(finished_run.path, "test")] == [0, 1, 2, 3]
    assert temporary_files(finished_run.path) == []


def test_default_directory_depends_on_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = small_command("run", "--json", "--rounds", "1")
    first, again, other = fedopt(*words), fedopt(*words), fedopt(*words, "--seed", "1")
    runs = [Path(json.loads(done.out)["run"]) for done in (first, again, other)]
    assert runs[0] == runs[1] != runs[2]
    assert re.fullmatch(r"runs/emnist_cr/fedavg-[0-9a-f]{6}", str(runs[0]))
    assert "finished" in again.err


def test_command_reports_a_finished_run_and_does_not_change_it(
    run_copy: Path, finished_run: FinishedRun
) -> None:
    before = {file: file.read_bytes() for file in run_copy.rglob("*") if file.is_file()}
    done = run_small(run_copy)
    assert done.code == 0
    assert done.err.splitlines()[-1] == f"{run_copy} is finished: 3 rounds"
    assert {**json.loads(done.out), "run": "", "seconds": 0} == {
        **finished_run.summary,
        "run": "",
        "seconds": 0,
    }
    assert {file: file.read_bytes() for file in run_copy.rglob("*") if file.is_file()} == before


def test_more_rounds_extend_a_finished_run(run_copy: Path, tmp_path: Path) -> None:
    extended, whole = run_small(run_copy, rounds=5), run_small(tmp_path / "whole", rounds=5)
    assert "continuing after round 3" in extended.err
    assert json.loads(extended.out)["x_sha256"] == json.loads(whole.out)["x_sha256"]
    assert [line["round"] for line in read_lines(run_copy, "train")] == [1, 2, 3, 4, 5]
    assert json.loads((run_copy / "run.json").read_text())["rounds"] == 5
    assert tomllib.loads((run_copy / "config.toml").read_text())["rounds"] == 5
    assert temporary_files(run_copy) == []


def test_fewer_rounds_are_refused_and_change_nothing(run_copy: Path) -> None:
    before = (run_copy / "metrics.jsonl").read_bytes()
    refused(run_small(run_copy, rounds=2), str(run_copy), "3 rounds")
    assert (run_copy / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("change", [{"client__lr": 0.2}, {"seed": 3}, {"server__schedule": "staircase"}])
def test_other_configuration_is_refused_and_the_run_does_not_change(
    run_copy: Path, change: dict[str, Any]
) -> None:
    before = (run_copy / "run.json").read_bytes()
    key = next(iter(change)).replace("__", ".")
    refused(run_small(run_copy, **change), str(run_copy), "another configuration", key, "another directory")
    assert (run_copy / "run.json").read_bytes() == before


def test_start_killed_before_the_config_is_written_starts_again(
    run_copy: Path, finished_run: FinishedRun
) -> None:
    """config.toml is written last, so a directory with less is the trace of a killed start."""
    (run_copy / "config.toml").unlink()
    (run_copy / "metrics.jsonl").write_bytes(b"")
    shutil.rmtree(run_copy / "checkpoints")
    done = run_small(run_copy)
    assert done.code == 0, done.err
    assert json.loads(done.out)["x_sha256"] == finished_run.summary["x_sha256"]


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    refused(run_small(file / "run"), str(file), "another directory")
    refused(run_small(file), str(file), "another directory")
    assert file.read_text() == "mine"


def test_directory_with_foreign_files_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    refused(run_small(tmp_path), str(tmp_path), "thesis.tex", "another directory")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_full_disk_ends_the_run_with_exit_code_1_and_no_partial_file(
    tmp_path: Path, finished_run: FinishedRun
) -> None:
    out = tmp_path / "run"
    with files_up_to(100_000):
        done = run_small(out)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith(f"failed: cannot write {out}")
    assert "Traceback" not in done.err
    assert temporary_files(out) == []
    assert json.loads((out / "run.json").read_text())["status"] == "failed"
    done = run_small(out)  # with enough space again
    assert json.loads(done.out)["x_sha256"] == finished_run.summary["x_sha256"]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_second_process_is_refused_and_interrupted_run_resumes(tmp_path: Path) -> None:
    out, rounds = tmp_path / "run", 1000
    words = [
        str(word)
        for word in small_command("run", "--json", "--out", out, "--rounds", str(rounds), eval__every=1000)
    ]
    command = [sys.executable, "-W", "error", "-m", "fedopt", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        wait_for(lambda: (out / "checkpoints" / "000001").is_dir(), first)
        refused(run_small(out, rounds=rounds, eval__every=1000), str(out), "in use", "another directory")
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        printed, errors = first.communicate(timeout=60)
    assert (first.returncode, printed) == (130, "")
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("interrupted; to resume: fedopt run emnist_cr")
    assert temporary_files(out) == []

    done = max(int(checkpoint.name) for checkpoint in (out / "checkpoints").iterdir())
    resumed = run_small(out, rounds=done + 1, eval__every=1000)
    assert f"continuing after round {done}" in resumed.err
    assert json.loads(resumed.out)["rounds"] == done + 1
    whole = run_small(tmp_path / "whole", rounds=done + 1, eval__every=1000)
    assert json.loads(whole.out)["x_sha256"] == json.loads(resumed.out)["x_sha256"]


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        (["fedyogi"], True),
        (["fedyogi", "--set", "variant=as_printed", "--set", "client.lr=0.1"], True),
        (["fedyogi", "--set", "variant=as_run"], False),
        (["fedyogi", "--set", "client.lr=0.1", "--set", "server.lr=0.1"], False),  # the user's rates
    ],
)
def test_heading_says_that_the_rates_of_the_paper_belong_to_the_code_of_its_authors(
    words: list[str], is_said: bool
) -> None:
    done = fedopt("run", "emnist_cr", "--show-config", "--algorithm", *words)
    assert done.code == 0
    assert (
        any("the authors' code" in line and "as_printed" in line for line in done.err.splitlines()) is is_said
    )
    assert "the authors' code" not in fedopt("run", "synthetic_lr", "--show-config").err
